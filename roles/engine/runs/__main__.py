"""`python -m roles.engine.runs`: generates the schemas of the JSON documents, docs/reference/*.schema.json, from their models."""

from __future__ import annotations

from pathlib import Path

from roles.engine.runs.reports import schemas

FOLDER = Path(__file__).resolve().parents[3] / "docs/reference"


if __name__ == "__main__":
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
