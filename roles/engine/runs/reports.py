"""Reports in the form that an operator chose, on standard output or in a file; and the schemas of those that are JSON.

A package lists the models of its JSON documents as DOCUMENTS in its face (`roles/<name>/__init__.py`), by the name of the deploy.
`python -m roles.engine.runs` writes docs/reference/DEPLOY.schema.json from each of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from roles.engine import bridge
from roles.engine.files import write_whole
from roles.engine.harmless import as_json, harmless
from roles.engine.inputs.registry import packages
from roles.engine.screen import for_file
from roles.engine.voice import show, show_document, show_lines


class Document(BaseModel):
    """The base of all models of JSON documents."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ChangeReport(Document):
    """A change as its node has recorded it: a claim of that node."""

    run: str
    at: str | None = Field(description="RFC 3339, the clock of its operator")
    host: str
    component: str
    state: str = Field(description="confirmed, reverted, applying, ...")
    reason: str = Field(description="why it is in that state")
    who: str
    what: str
    command: str
    of_cluster: bool = Field(default=False, description="it changed objects of the API: its host only keeps the record")
    undone_by: str | None = Field(default=None, description="the run that has undone it")

    @property
    def place(self) -> str:
        """What it changed: its node, or the cluster."""
        return "cluster" if self.of_cluster else self.host

    @property
    def outcome(self) -> str:
        """Its state, with the reason where that says more."""
        if self.undone_by:
            return "undone"
        return self.state + (f": {self.reason}" if self.state not in ("confirmed", "staged") and self.reason else "")


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


def document(report: BaseModel) -> str:
    """The JSON document of a report whose model a face lists in DOCUMENTS."""
    return as_json(report.model_dump(mode="json"))


def schemas() -> dict[str, str]:
    """The JSON schemas (2020-12) of all documents, by the names of their files in docs/reference/."""
    found = [getattr(import_module(f"roles.{name}"), "DOCUMENTS", {}) for name in packages()]
    return {f"{deploy}.schema.json": _schema(model) for one in found for deploy, model in one.items()}


def _schema(model: type[BaseModel]) -> str:
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(mode="serialization")}
    return json.dumps(described, indent=2) + "\n"
