"""Whether the versions of all components of a cluster may run together, before any of them is restarted. Pure.

Rules: the version skew policy of Kubernetes (kubernetes.io/releases/version-skew-policy): a kubelet is never newer than an apiserver, and
up to three minors older (two before 1.25); apiservers are within one minor; controller-manager and scheduler are never newer than an
apiserver, and at most one minor older.
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
    """What does not go together, one sentence each with both ends named; empty where all is well or no apiserver was seen."""
    running = list(found)
    apiservers = [one for one in running if one.component == "kube-apiserver"]
    if not apiservers:
        return []
    oldest, newest = min(apiservers, key=lambda one: one.minor), max(apiservers, key=lambda one: one.minor)
    told = []
    if newest.minor - oldest.minor > 1:
        told.append(_problem(newest, oldest, "apiservers may be one minor apart", f"bring {oldest.host} to 1.{newest.minor - 1} at least"))
    for one in running:
        if one.component == "kube-apiserver":
            continue
        if one.minor > oldest.minor:
            told.append(
                _problem(one, oldest, f"a {one.component} is never newer than an apiserver", f"upgrade the apiserver of {oldest.host}")
            )
        allowed = _allowed(one)
        if newest.minor - one.minor > allowed:
            rule = f"a {one.component} of 1.{one.minor} may be {allowed} minor{'s' if allowed > 1 else ''} older than an apiserver"
            told.append(_problem(one, newest, rule, f"upgrade the {one.component} of {one.host}"))
    return told


def _allowed(one: Running) -> int:
    if one.component != "kubelet":
        return 1
    return 3 if one.minor >= _OLDER_KUBELETS_SINCE else 2


def _problem(one: Running, other: Running, rule: str, way_out: str) -> str:
    return f"{one.host}: {one.component} 1.{one.minor} beside the kube-apiserver 1.{other.minor} of {other.host}: {rule}; {way_out} first"
