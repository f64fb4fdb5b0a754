"""Checks the versions of all components of a cluster against the version skew policy, before any component is restarted. Pure.

Rules: the version skew policy of Kubernetes (kubernetes.io/releases/version-skew-policy): a kubelet is not newer than an API server, and
at most three minors older (two before 1.25); API servers are within one minor; controller-manager and scheduler are not newer than an
API server, and at most one minor older.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_OLDER_KUBELETS_SINCE = 25


@dataclass(frozen=True)
class Running:
    """One component of one node and its minor, 36 for 1.36."""

    host: str
    component: str
    minor: int


def problems(found: Iterable[Running]) -> list[str]:
    """The violations, one sentence each that names both components; empty if there is none, or if no API server was observed."""
    running = list(found)
    apiservers = [one for one in running if one.component == "kube-apiserver"]
    if not apiservers:
        return []
    oldest, newest = min(apiservers, key=lambda one: one.minor), max(apiservers, key=lambda one: one.minor)
    found_problems = []
    if newest.minor - oldest.minor > 1:
        way_out = f"upgrade the API server of {oldest.host} to at least 1.{newest.minor - 1}"
        found_problems.append(_problem(newest, oldest, "API servers must be within one minor", way_out))
    for one in running:
        if one.component == "kube-apiserver":
            continue
        if one.minor > oldest.minor:
            rule = f"a {one.component} must not be newer than an API server"
            found_problems.append(_problem(one, oldest, rule, f"upgrade the API server of {oldest.host}"))
        allowed = _allowed(one)
        if newest.minor - one.minor > allowed:
            rule = f"a {one.component} of 1.{one.minor} may be at most {allowed} minor{'s' if allowed > 1 else ''} older than an API server"
            found_problems.append(_problem(one, newest, rule, f"upgrade the {one.component} of {one.host}"))
    return found_problems


def _allowed(one: Running) -> int:
    if one.component != "kubelet":
        return 1
    return 3 if one.minor >= _OLDER_KUBELETS_SINCE else 2


def _problem(one: Running, other: Running, rule: str, way_out: str) -> str:
    return f"{one.host}: {one.component} 1.{one.minor} with the kube-apiserver 1.{other.minor} of {other.host}: {rule}; {way_out} first"
