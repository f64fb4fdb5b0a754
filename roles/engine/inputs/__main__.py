"""`python -m roles.engine.inputs`: generates docs/reference/data.md and docs/reference/data.schema.json from the models."""

from __future__ import annotations

from pathlib import Path

from roles.engine.inputs import reference

FOLDER = Path(__file__).resolve().parents[3] / "docs/reference"
FILES = {"data.md": reference.markdown, "data.schema.json": reference.schema_text}


def main() -> None:
    """Write both files."""
    for name, text in FILES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
