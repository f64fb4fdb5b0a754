"""Who may be turned off, and which Node a host that does not answer is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.outage import Mark, node_fate, read_mark
from roles.reboot import RebootPlan


def off_refusals(plan: RebootPlan, purpose: str) -> list[str]:
    """Why a node must not be turned off. `purpose`: the name of a power off in a mark."""
    host, fate, mark = plan.host, node_fate(plan.candidate.node), read_mark(plan.candidate.node)
    found = []
    if plan.candidate.is_control_plane:
        found.append(f"{host}: it is a control-plane node: daytwo turns none off; use deploys/reboot.py to reboot it")
    if fate.cordon == "theirs":
        found.append(f"{host}: {fate.by} has cordoned it, not daytwo; uncordon it, or leave it to them")
    if mark is not None and mark.boot and mark.purpose == purpose and mark.boot != plan.candidate.facts.boot.id:
        found.append(f"{host}: run {mark.run} turned it off, and it is on without a proof; first --data power_on={host}")
    if plan.what in ("finish", "release"):
        found.append(f"{host}: {plan.why}; first run deploys/reboot.py --data nodes={host}")
    return [*found, *plan.refusals]


def power_mark(node: Object, *purposes: str) -> Mark | None:
    """The mark of the run that took a node out for one of these."""
    mark = read_mark(node)
    return mark if mark is not None and mark.purpose in purposes else None


def missing(hosts: Iterable[str], known: Mapping[str, object]) -> list[str]:
    """Sentences for the hosts without the data key."""
    sentence = "it has no data key power, which says how its power is switched; see docs/power.md"
    return [f"{host}: {sentence}" for host in hosts if host not in known]


def by_name(nodes: Iterable[Object]) -> dict[str, Object]:
    return {name_of(node): node for node in nodes}
