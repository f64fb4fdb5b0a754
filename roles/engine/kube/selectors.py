"""Label selectors, read exactly as Kubernetes reads them. Pure.

apimachinery/pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector), apimachinery/pkg/labels/selector.go
(NewRequirement, Requirement.Matches).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from roles.engine.kube.names import key_problem, value_problem

#: The operators of label selectors.
OF_LABELS = ("In", "NotIn", "Exists", "DoesNotExist")
#: The operators of node selectors.
OF_NODES = (*OF_LABELS, "Gt", "Lt")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True)
class Requirement:
    """One condition on a label. `operator`: one of OF_NODES."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values if self.key in labels else False
            case "NotIn":
                # A label that is not there is not in the list either.
                return self.key not in labels or labels[self.key] not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
        found, bound = _integer(labels.get(self.key)), _integer(self.values[0])
        return found is not None and bound is not None and (found > bound if self.operator == "Gt" else found < bound)

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"
            case "Gt" | "Lt":
                return f"{self.key}{'>' if self.operator == 'Gt' else '<'}{self.values[0]}"
        return f"{'!' if self.operator == 'DoesNotExist' else ''}{self.key}"


@dataclass(frozen=True)
class LabelSelector:
    """All requirements must match. `absent`: there is no selector, so nothing matches; no requirements: `{}`, so everything matches.
    `problem`: why Kubernetes cannot read it; then nothing matches."""

    requirements: tuple[Requirement, ...] = ()
    absent: bool = False
    problem: str = ""

    @property
    def matches_everything(self) -> bool:
        return not (self.requirements or self.absent or self.problem)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Labels, with their values, that all it matches have."""
        return [(one.key, one.values[0]) for one in self.requirements if one.operator == "In" and len(one.values) == 1]

    def matches(self, labels: Mapping[str, Any] | None) -> bool:
        """`labels`: metadata.labels of an object, None if it has none."""
        if self.absent or self.problem:
            return False
        found = labels or {}
        return all(one.matches(found) for one in self.requirements)

    def with_own(self, keys: Iterable[str], labels: Mapping[str, str]) -> LabelSelector:
        """The selector that also asks for a pod's own values of `keys` (matchLabelKeys)."""
        own = tuple(Requirement(key, "In", (labels[key],)) for key in keys if key in labels)
        return self if self.absent else replace(self, requirements=(*self.requirements, *own))

    def __str__(self) -> str:
        if self.absent:
            return "no selector"
        return self.problem or ", ".join(map(str, self.requirements)) or "{}"


def label_selector(raw: Mapping[str, Any] | None) -> LabelSelector:
    """A LabelSelector (meta/v1): {"matchLabels": {...}, "matchExpressions": [{"key", "operator", "values"}]}; None: the field is absent."""
    if raw is None:
        return LabelSelector(absent=True)
    labels = [{"key": key, "operator": "In", "values": (value,)} for key, value in (raw.get("matchLabels") or {}).items()]
    return of_expressions((*labels, *(raw.get("matchExpressions") or ())), OF_LABELS)


def query_of(raw: Mapping[str, Any] | None) -> str:
    """A LabelSelector as the parameter labelSelector of a request (FormatLabelSelector); "" for everything, and if there is none. Raises
    ValueError."""
    found = label_selector(raw)
    if found.problem:
        raise ValueError(found.problem)
    return ",".join(map(str, found.requirements))


def of_expressions(expressions: Iterable[Mapping[str, Any]], operators: Collection[str]) -> LabelSelector:
    """Expressions as [{"key", "operator", "values"}], with one of `operators` each. One that Kubernetes cannot read spoils them all."""
    found = []
    for one in expressions:
        operator = str(one.get("operator", ""))
        if operator not in operators:
            return LabelSelector(problem=f'"{operator}" is not a valid label selector operator')
        requirement, problem = _read(str(one.get("key", "")), operator, tuple(map(str, one.get("values") or ())))
        if problem:
            return LabelSelector(problem=problem)
        found.append(requirement)
    return LabelSelector(tuple(found))


# The same few requirements are read for each pod, node and budget of a cluster.
@lru_cache(maxsize=4096)
def _read(key: str, operator: str, values: tuple[str, ...]) -> tuple[Requirement, str]:
    """A requirement, and why Kubernetes cannot read it (NewRequirement): also a key or a value that no label can have."""
    problem = ""
    if bool(values) != (operator not in ("Exists", "DoesNotExist")):
        problem = f"{key}: the operator {operator} {'takes no values' if values else 'needs values'}"
    elif operator in ("Gt", "Lt") and (len(values) != 1 or _integer(values[0]) is None):
        problem = f"{key}: the operator {operator} takes one integer"
    problems = (problem, key_problem(key), *(value_problem(key, value) for value in values))
    return Requirement(key, operator, values), next(filter(None, problems), "")


def _integer(text: str | None) -> int | None:
    """A number of 64 bits (strconv.ParseInt)."""
    found = int(text) if text is not None and _INTEGER.fullmatch(text) else None
    return found if found is not None and -(2**63) <= found < 2**63 else None
