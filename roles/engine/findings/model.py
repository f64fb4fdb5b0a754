"""A rule, and what it finds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from roles.engine.commands import whole


class Severity(StrEnum):
    """`critical`: the next restart or upgrade breaks something, or the last one did; a drain can never end, an autoscaler does nothing,
    or a host is not what it claims. `warning`: something is not what people expect. `note`: no effect today."""

    critical = "critical"
    warning = "warning"
    note = "note"


SEVERITIES = tuple(Severity)


class Rule(StrEnum):
    """A row of a table of rules; the table is a subclass, whose members are `NAME = id, severity, about, way_out, heading`.

    `about` and `way_out` are Markdown for the table in docs/, which is generated. `severity` and `way_out` are those of a finding that
    has none of its own; `heading` is what people see instead of the id, if it is there; of a rule for nodes, the kind of the audit.
    """

    severity: Severity
    about: str
    way_out: str
    heading: str

    def __new__(cls, name: str, severity: Severity, about: str, way_out: str = "", heading: str = "") -> Self:
        row = str.__new__(cls, name)
        row._value_, row.severity, row.about, row.way_out, row.heading = name, severity, about, way_out, heading
        return row

    def found(self, subject: Subject, why: str, way_out: str = "", severity: Severity | None = None) -> Finding:
        return Finding(self, severity or self.severity, subject, whole(why), whole(way_out or self.way_out))


@dataclass(frozen=True)
class Place:
    """A place on a node. `node`: a host of the inventory, None: the cluster; `component`: its process; `name`: the gate, flag, field or
    object; `file`: its path; `line`: 1-based, None: the whole file; `value`: what was found there."""

    node: str | None
    component: str | None = None
    name: str | None = None
    file: str | None = None
    line: int | None = None
    value: str | None = None


#: A place on a node, or objects of the cluster: `KIND NAMESPACE/NAME`, the main one first.
Subject = Place | tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """`why`: what is wrong, with the values found; `way_out`: what an operator can do."""

    rule: Rule
    severity: Severity
    subject: Subject
    why: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.why}; {self.way_out}"

    @property
    def said(self) -> str:
        """What is wrong, with its place, where its rule stands beside it: `FILE:LINE: WHY`."""
        where = self.place.file or ""
        return f"{where}{f':{self.place.line}' if self.place.line else ''}: {self.why}" if where and where not in self.why else self.why

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects of the cluster that it is about."""
        return self.subject if isinstance(self.subject, tuple) else ()

    @property
    def place(self) -> Place:
        """Where it is on a node; of objects of the cluster, the main one by its name."""
        return self.subject if isinstance(self.subject, Place) else Place(None, name=self.subject[0])


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: SEVERITIES.index(one.severity))


def why_of(findings: Iterable[Finding], *rules: Rule) -> str:
    """Why the first finding of one of these rules is wrong; "" if there is none."""
    return next((one.why for one in findings if one.rule in rules), "")


@dataclass(frozen=True)
class Unmet:
    """An object that differs from the data. `fields`: those that differ; `why`: what is more to say, or all of it."""

    name: str
    fields: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        differ = f"{', '.join(self.fields)} {'differs' if len(self.fields) == 1 else 'differ'}" if self.fields else ""
        return f"{self.name}: {differ}{self.why}"


# pass: it holds. fail: it does not. skip: it does not apply, or another check must pass first. unknown: it could not be checked.
CheckOutcome = Literal["pass", "fail", "skip", "unknown"]


@dataclass(frozen=True)
class Result:
    """What a check says of a node. `node`: a host of the inventory, or `cluster`; `why`: the evidence if it passed, the fault if it failed;
    `applies` is False if there is nothing to check; `causes`: the rules of the findings that failed it."""

    node: str
    check: str
    outcome: CheckOutcome
    why: str
    applies: bool = True
    causes: tuple[Rule, ...] = ()
