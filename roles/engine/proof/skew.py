"""The versions of all components of a cluster against the version skew policy, as they are and as restarts would leave them. Pure.

Rules: the version skew policy of Kubernetes (kubernetes.io/releases/version-skew-policy): a kubelet is not newer than an API server, and
at most three minors older (two before 1.25); API servers are within one minor; controller-manager and scheduler are not newer than an
API server, and at most one minor older. A Node object without a kubelet (roles/engine/node/virtual.py) is in no such policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kube.fields import kubelet_version
from roles.engine.node import Process, minor_of
from roles.engine.node.virtual import virtual_mark

KUBELET, _APISERVER = "kubelet", "kube-apiserver"
_OLDER_KUBELETS_SINCE = 25
_RESTORE = "install the old version of its package again, or"


@dataclass(frozen=True)
class Running:
    """One component of one node and its minor, 36 for 1.36; None: it has none that the policy knows. `outside`: its node is not in the
    inventory; `comes`: it does not run yet, a restart starts it."""

    host: str
    component: str
    minor: int | None
    outside: bool = False
    comes: bool = False


@dataclass(frozen=True)
class Violation:
    """`one` must not run together with `other`; `way_out`: what has to change first."""

    one: Running
    other: Running
    rule: str
    way_out: str

    def __str__(self) -> str:
        would = "would be " if self.one.comes else ""
        one, other = self.one, self.other
        return (
            f"{one.host}: {would}{one.component} 1.{one.minor} with the kube-apiserver 1.{other.minor} of {other.host}: "
            f"{self.rule}; {self.way_out} first"
        )


def problems(found: Iterable[Running]) -> list[str]:
    """The violations, one sentence each that names both components; empty if there is none, or if no API server was observed."""
    return [str(one) for one in violations(found)]


def violations(found: Iterable[Running]) -> list[Violation]:
    """The same, as values."""
    running = [one for one in found if one.minor is not None]
    apiservers = [one for one in running if one.component == _APISERVER]
    if not apiservers:
        return []
    oldest, newest = min(apiservers, key=_minor), max(apiservers, key=_minor)
    violated = []
    if _minor(newest) - _minor(oldest) > 1:
        way_out = f"upgrade the API server of {oldest.host} to at least 1.{_minor(newest) - 1}"
        violated.append(Violation(newest, oldest, "API servers must be within one minor", way_out))
    for one in running:
        if one.component == _APISERVER:
            continue
        if _minor(one) > _minor(oldest):
            rule = f"a {one.component} must not be newer than an API server"
            more = f"{_RESTORE} " if one.comes else ""
            violated.append(Violation(one, oldest, rule, f"{more}upgrade the API server of {oldest.host}"))
        allowed = _allowed(one)
        if _minor(newest) - _minor(one) > allowed:
            rule = f"a {one.component} of 1.{one.minor} may be at most {allowed} minor{'s' if allowed > 1 else ''} older than an API server"
            violated.append(Violation(one, newest, rule, f"upgrade the {one.component} of {one.host}"))
    return violated


def _minor(one: Running) -> int:
    return one.minor or 0


def _allowed(one: Running) -> int:
    if one.component != KUBELET:
        return 1
    return 3 if _minor(one) >= _OLDER_KUBELETS_SINCE else 2


# ---- the whole cluster


@dataclass(frozen=True)
class Outside:
    """The kubelets of nodes outside the inventory, and `notes` about those that are no kubelets."""

    running: tuple[Running, ...] = ()
    notes: tuple[str, ...] = ()


def outside(nodes: Mapping[str, Mapping[str, Any]], observed: Collection[str]) -> Outside:
    """`nodes` as the API has them, by name; those that were `observed` (names) count with what was observed."""
    running, virtual = [], []
    for name, node in sorted(nodes.items()):
        if name in observed:
            continue
        version = kubelet_version(node)
        if (mark := virtual_mark(node)) is not None:
            virtual.append(f"{one_line(name)} ({mark.made_by}, by its {mark}; version {one_line(version) or 'none'})")
        else:
            running.append(Running(name, KUBELET, minor_of(version), outside=True))
    notes = [f"no kubelet is behind these Node objects, so their versions do not count: {'; '.join(virtual)}"] if virtual else []
    return Outside(tuple(running), tuple(notes))


def running_of(host: str, processes: Mapping[str, Process]) -> list[Running]:
    """The components of an observed node, from their processes by name."""
    return [Running(host, name, process.minor) for name, process in processes.items()]


@dataclass(frozen=True)
class SkewJudgement:
    """`refused` stop a run; `known` are violations that it does not make worse, and those with consent. `forbidden`: the host and component
    of each restart that would start a version which the policy forbids."""

    refused: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    forbidden: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Restarts:
    """What a run restarts: by host and component, the minor that starts then (None: not known). `undoes`: the run brings an earlier state
    back, so only what it would make worse counts; `all_of_it`: any violation counts, also of what it does not restart."""

    minors: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    undoes: bool = False
    all_of_it: bool = False


def judge_skew(running: Iterable[Running], restarts: Restarts, allowed: Collection[str] = ()) -> SkewJudgement:
    """`running`: all that run now. `allowed`: nodes outside the inventory that may violate the policy, by consent."""
    now = list(running)
    before = {(one.one.host, one.one.component, one.rule) for one in violations(now)}
    refused, known, forbidden = [], [], set()
    for found in violations(_restarted(one, restarts) for one in now):
        one = found.one
        key = (one.host, one.component)
        if one.outside and one.host in allowed:
            known.append(f"{found} (allow_skew_of)")
        elif (*key, found.rule) not in before or restarts.all_of_it or (key in restarts.minors and not restarts.undoes):
            refused.append(str(found) + (_consent(one) if one.outside else ""))
            forbidden |= {key} if one.comes else set()
        else:
            known.append(str(found))
    return SkewJudgement(tuple(refused), tuple(known), frozenset(forbidden))


def _restarted(one: Running, restarts: Restarts) -> Running:
    minor = restarts.minors.get((one.host, one.component), one.minor)
    return one if minor in (None, one.minor) else replace(one, minor=minor, comes=True)


def _consent(one: Running) -> str:
    return f"; this node is not in the inventory: if its version should not count, --data allow_skew_of={one_line(one.host)}"
