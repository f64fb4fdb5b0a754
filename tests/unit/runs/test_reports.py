"""A report goes where its operator wants it, in the form that was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.engine import voice
from roles.engine.runs import show_report
from roles.engine.runs.__main__ import FOLDER
from roles.engine.runs.reports import schemas

FORMS = {"text": lambda: "for people \x1b", "json": lambda: "{}"}


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(voice, "_out", said.append)
    return said


def test_standard_output_has_only_the_document(printed: list[str]) -> None:
    show_report(FORMS, "json")
    assert printed == ["{}"]


@pytest.mark.parametrize(("chosen", "written"), [("json", "{}\n"), ("text", "for people \\x1b\n")])
def test_a_file_has_the_document_and_people_their_text(printed: list[str], tmp_path: Path, chosen: str, written: str) -> None:
    show_report(FORMS, chosen, tmp_path / "report")
    assert (tmp_path / "report").read_text() == written
    assert printed == ["for people \\x1b", f"\n{chosen}: {tmp_path / 'report'}"]


def test_a_path_that_cannot_be_written_is_refused_with_its_data_key(printed: list[str], tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"output={tmp_path}: choose another path; the report cannot be written there"):
        show_report(FORMS, "json", tmp_path)
    assert printed == []


@pytest.mark.parametrize("name", schemas())
def test_the_schemas_of_documents_are_their_models(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == schemas()[name], "run `python -m roles.engine.runs`"
