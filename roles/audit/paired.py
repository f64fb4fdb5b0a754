"""Settings that do not fit each other now, whoever has changed them (docs/reference/pairs.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from roles.audit.rules import AuditRule
from roles.audit.view import View
from roles.engine import pairs
from roles.engine.bridge import Fleet, Remote
from roles.engine.findings import Finding, Place
from roles.engine.node_changes import read_picture, servers
from roles.engine.pairs import Mismatch, Picture
from roles.engine.proof import Cluster


def read_mismatches(fleet: Fleet, cluster: Cluster, views: Sequence[View]) -> tuple[list[Mismatch], list[str]]:
    """The pairs that do not fit, and what could not be read of them."""
    remotes: Mapping[str, Remote] = {remote.name: remote for remote in fleet.targets}
    reading = read_picture(fleet, cluster, remotes, pairs.PAIRS, picture_of(views))
    found = pairs.mismatches(reading.picture)
    unread = [*reading.problems, *(pairs.sentence(one) for one in found if not one.is_known)]
    return [one for one in found if one.is_known], [f"settings that must fit each other: {problem}" for problem in unread]


def picture_of(views: Iterable[View]) -> Picture:
    """What the views have: flags, and the fields that the kubelets run with. Pure."""
    known = [view for view in views if view.kubelet is not None]
    return Picture(
        tuple(one for view in known if view.kubelet for one in servers(view.kubelet.seen.host, view.kubelet, view.components)),
        tuple(pairs.kubelet_side(view.kubelet, pairs.FIELDS, view.effective) for view in known if view.kubelet is not None),
    )


def findings(found: Iterable[Mismatch]) -> Iterator[Finding]:
    """Pure. A finding for each host that has the first side of a pair of its own node, else one for the cluster."""
    for one in found:
        alone = one.here if one.pair.own else (one.here[0] if len(one.here) == 1 else None,)
        for host in alone:
            yield AuditRule.PAIR.found(
                Place(host, one.pair.here.owner, one.pair.name, value=pairs.text(one.values[0])),
                pairs.sentence(one, host or ""),
                one.pair.way_out,
                one.pair.found or one.pair.severity,
            )
