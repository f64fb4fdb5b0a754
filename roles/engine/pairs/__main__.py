"""`python -m roles.engine.pairs`: generates docs/reference/pairs.md from the table."""

from __future__ import annotations

from pathlib import Path

from roles.engine.pairs import reference

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/pairs.md"

if __name__ == "__main__":
    PAGE.write_text(reference.markdown(), encoding="utf-8")
