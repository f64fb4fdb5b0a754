"""Settings that must fit others elsewhere, in the plans of a run: judged for the state after it, with what is read of the other side."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from roles.engine.api import NoApi
from roles.engine.node_changes import NodePlan
from roles.engine.node_changes.paired import judge
from tests.unit.control_plane_flags.world import plan as plan_flags
from tests.unit.control_plane_flags.world import seen
from tests.unit.kubelet_config.world import node_plan, state
from tests.unit.pairs.world import CLIENT_KEY, SA_KEY, held, pem

MANAGER = "kube-controller-manager"
GRACE, LEASE = "node-monitor-grace-period", "nodeLeaseDurationSeconds"


@dataclass
class Reading:
    """The API, with what was asked of it."""

    nodes: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    away: bool = False

    def known_nodes(self) -> dict[str, Any]:
        self.asked.append("nodes")
        if self.away:
            raise NoApi("no API")
        return self.nodes

    def object(self, path: str) -> None:
        self.asked.append(path)


def flags(**values: Any) -> NodePlan[Any]:
    return plan_flags({"control_plane_flags": {component.replace("_", "-"): changes for component, changes in values.items()}})


def judged(
    *plans: NodePlan[Any], others: tuple[NodePlan[Any], ...] = (), reading: Reading | None = None, **more: Any
) -> tuple[list[str], list[str]]:
    """The warnings and the refusals. `others`: nodes of the cluster that the run does not change."""
    observed = {
        plan.host: SimpleNamespace(kubelet=plan.kubelet, components=plan.components, remote=SimpleNamespace(name=plan.host))
        for plan in (*others, *plans)
    }
    found = SimpleNamespace(observed=observed, reading=reading or Reading())
    fleet = SimpleNamespace(each=lambda remotes, work, doing: {remote.name: (more.get("files", {}), {}) for remote in remotes})
    before = [warning for plan in plans for warning in plan.warnings]
    made, refused = judge(cast(Any, fleet), cast(Any, found), list(plans), more.pop("allowed", ()), undoes=more.get("undoes", False))
    return [warning for plan in made for warning in plan.warnings if warning not in before], [str(one) for one in refused]


def worker(**fields: Any) -> NodePlan[Any]:
    return node_plan(state(""), fields)


def test_the_other_side_is_another_node() -> None:
    quiet = worker()
    warnings, refused = judged(flags(kube_controller_manager={GRACE: "9s"}), others=(quiet,))
    (only,) = refused
    assert f"{MANAGER} --{GRACE} 9s of cp1 and kubelet {LEASE} 40 of" in only and "renewed each 10 s, and 9s is not more" in only
    assert "[lease-within-the-grace-period]" in only and "--data allow_pairs=lease-within-the-grace-period" in only
    assert any("several-renewals" in one for one in warnings)
    # With consent, or in an undo, it is a warning.
    for more in ({"allowed": ("lease-within-the-grace-period",)}, {"undoes": True}):
        warnings, refused = judged(flags(kube_controller_manager={GRACE: "9s"}), others=(quiet,), **more)
        assert refused == [] and any("[lease-within-the-grace-period]" in one for one in warnings)


def test_what_touches_no_pair_reads_nothing() -> None:
    reading = Reading()
    assert judged(flags(kube_scheduler={"v": 3}), worker(containerLogMonitorInterval="5s"), reading=reading) == ([], [])
    assert reading.asked == []


def test_a_consent_for_no_pair_is_refused() -> None:
    _, refused = judged(flags(kube_scheduler={"v": 3}), allowed=("maxpods",))
    assert "allow_pairs=maxpods: no pair has that name" in refused[0]


def test_nodes_are_read_once_and_what_cannot_be_read_is_said() -> None:
    reading = Reading({"n": {"spec": {"podCIDRs": ["10.244.1.0/24"]}}})
    change = flags(kube_controller_manager={"cluster-cidr": "10.245.0.0/16", "allocate-node-cidrs": "true"})
    _, refused = judged(change, reading=reading)
    assert any("10.244.1.0/24 is outside of 10.245.0.0/16" in one for one in refused) and reading.asked.count("nodes") == 1
    warnings, refused = judged(change, reading=Reading(away=True))
    assert refused == [] and "what must fit a setting of this run elsewhere could not be read: no API" in warnings


def test_what_a_restart_reads_again_must_fit_whoever_edited_it() -> None:
    """No flag changes, and the running process has what the files held when it started."""
    names = {"service-account-key-file": "/sa.pub", "service-account-signing-key-file": "/sa.key"}
    change = plan_flags(
        {"control_plane_flags": {"kube-apiserver": {"v": 3}}},
        seen(apiserver=("kube-apiserver", *(f"--{name}={path}" for name, path in names.items()))),
    )
    fits = {"/sa.key": held("/sa.key", SA_KEY), "/sa.pub": held("/sa.pub", pem(SA_KEY))}
    assert judged(change, files=fits) == ([], [])
    other = {**fits, "/sa.pub": held("/sa.pub", pem(CLIENT_KEY))}
    warnings, (refused,) = judged(change, files=other)
    assert (
        warnings == []
        and "its restart reads these files again: " in refused
        and "no key in /sa.pub belongs to the one in /sa.key" in refused
        and "allow_pairs=tokens-are-accepted" in refused
    )
    assert judged(change, files=other, allowed=("tokens-are-accepted",))[1] == judged(change, files=other, undoes=True)[1] == []
    # The scheduler reads none of them.
    scheduler = plan_flags({"control_plane_flags": {"kube-scheduler": {"v": 3}}}, seen(apiserver=change.components["kube-apiserver"].argv))
    assert judged(scheduler, files=other) == ([], [])
