"""Label selectors, read exactly as Kubernetes reads them. Pure.

apimachinery/pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector), apimachinery/pkg/labels/selector.go
(NewRequirement, Requirement.Matches).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from roles.engine.kube.names import key_problem, value_problem

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True)
class Requirement:
    """One condition on a label. `operator`: In, NotIn, Exists, DoesNotExist."""

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
            case _:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "Exists":
                return self.key
            case _:
                return f"!{self.key}"


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

    def __str__(self) -> str:
        if self.absent:
            return "no selector"
        return self.problem or ", ".join(map(str, self.requirements)) or "{}"


def label_selector(raw: Mapping[str, Any] | None) -> LabelSelector:
    """A LabelSelector (meta/v1): {"matchLabels": {...}, "matchExpressions": [{"key", "operator", "values"}]}; None: the field is absent."""
    if raw is None:
        return LabelSelector(absent=True)
    found = [Requirement(str(key), "In", (str(value),)) for key, value in (raw.get("matchLabels") or {}).items()]
    for one in raw.get("matchExpressions") or ():
        operator, values = str(one.get("operator", "")), tuple(map(str, one.get("values") or ()))
        if operator not in _OPERATORS:
            return LabelSelector(problem=f'"{operator}" is not a valid label selector operator')
        if bool(values) != (operator in ("In", "NotIn")):
            needs = "needs values" if not values else "takes no values"
            return LabelSelector(problem=f"{one.get('key')}: the operator {operator} {needs}")
        found.append(Requirement(str(one.get("key", "")), operator, values))
    return LabelSelector(tuple(found), problem=next(_invalid(found), ""))


def _invalid(requirements: list[Requirement]) -> Iterator[str]:
    """Keys and values that no label can have; one of them makes the whole selector invalid (NewRequirement)."""
    for one in requirements:
        for problem in (_key_problem(one.key), *(_value_problem(one.key, value) for value in one.values)):
            if problem:
                yield problem


# The same few keys and values are read for each pod and budget of a cluster.
_key_problem = lru_cache(maxsize=4096)(key_problem)
_value_problem = lru_cache(maxsize=4096)(value_problem)
