"""Reports in the form that an operator chose, on standard output or in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from roles.engine import bridge
from roles.engine.files import write_whole
from roles.engine.harmless import harmless
from roles.engine.screen import for_file
from roles.engine.voice import show, show_document, show_lines


def show_report(forms: Mapping[str, Callable[[], str]], chosen: str, output: Path | None = None) -> None:
    """`forms`: by name, the one for people first. With `output` (a path on the operator's machine) the document goes there, and standard
    output gets the text for people; without it, standard output has only the document. Raises DeployError if it cannot be written."""
    people = next(iter(forms))
    if output is None:
        (show_lines if chosen == people else show_document)(forms[chosen]())
        return
    with for_file():
        document = forms[chosen]()
    write_report("output", output, (harmless(document) if chosen == people else document) + "\n")
    show_lines(forms[people]())
    show(f"\n{chosen}: {output}")


def write_report(key: str, path: Path, text: str) -> None:
    """`key`: the data key that names the path. Raises DeployError."""
    with bridge.refusing(OSError, f"{key}={path}: choose another path; the report cannot be written there: "):
        write_whole(path, text)
