"""The run of deploys/drain.py: how it ends, what it uncordons when it halts, and what it says has moved."""

from __future__ import annotations

from types import SimpleNamespace

from roles.drain import DrainRun
from roles.drain.run import rows
from roles.engine.outage.drainer import EVICT, PROVE
from roles.engine.outage.undo import plan_undo
from roles.engine.transaction.object_record import parse
from tests.unit.disruption.world import pod
from tests.unit.hosts import RecordHost, own_record
from tests.unit.outage import world
from tests.unit.outage.api import ClusterApi, Write
from tests.unit.outage.driven import RUN, cluster, drive, refuse_second


def cordon(api: ClusterApi) -> tuple[bool, str]:
    return world.cordon(api.one("Node", "w1"))


def outcomes(run: DrainRun) -> list[tuple[str, str]]:
    return [(step.name.removeprefix("pod shop/"), step.outcome) for step in run.steps]


def test_a_node_that_is_drained_stays_cordoned(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    run = drive(host, api)
    assert outcomes(run) == [("Node w1", "done"), ("web-1-0", "done"), ("web-1-1", "done"), ("Node w1 drained", "done")]
    said = "\n".join(told)
    assert cordon(api) == (True, RUN) and "Uncordon: pyinfra INVENTORY deploys/uncordon.py --data nodes=w1" in said
    assert "Moved until then" not in said and "uncordoning" not in said


def test_a_run_that_halts_says_what_has_moved_and_uncordons(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    refuse_second(api)
    run = drive(host, api)
    assert outcomes(run) == [
        ("Node w1", "reverted"), ("web-1-0", "done"), ("web-1-1", "not started"), ("Node w1 drained", "not started"),
    ]  # fmt: skip
    said = "\n".join(told)
    assert cordon(api) == (False, "") and "Moved until then, and not coming back: shop/web-1-0" in told
    assert (
        told[-1].startswith("HALTED: 1 done, 2 not started, 1 reverted in ") and "Undo: pyinfra INVENTORY deploys/rollback.py" in told[-1]
    )
    assert (
        "halted: Node w1: restoring the cordons that were there before, or none" in said
        and "uncordoned, since the run halted: read back" in said
    )
    assert "the API server refused its eviction for" in run.halted and "Uncordon: " not in said


def test_after_ctrl_c_the_eviction_in_progress_ends_and_no_other_begins(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    run = drive(host, api, lambda run, write: run.interrupt() if write[0] == "create" else None)
    assert api.evicted() == ["web-1-0"] and run.halted == "interrupted by the operator" and cordon(api) == (False, "")
    assert outcomes(run)[:3] == [("Node w1", "reverted"), ("web-1-0", "done"), ("web-1-1", "not started")]
    assert "Moved until then, and not coming back: shop/web-1-0" in told


def test_a_pod_that_came_in_mid_drain_and_was_moved_is_named(host: RecordHost, told: list[str]) -> None:
    api = cluster()

    def at(run: DrainRun, write: Write) -> None:
        if write[0] != "create":
            return
        if len(api.evicted()) == 2:
            api.add(pod("late", app="late"))
        if api.evicted()[-1] == "late":
            for name in ("new-1", "new-3"):  # so that the proof fails
                del api.there[f"/api/v1/namespaces/shop/pods/{name}"]

    run = drive(host, api, at)
    assert "Moved until then, and not coming back: shop/web-1-0, shop/web-1-1, shop/late" in told and cordon(api) == (False, "")
    # Before it was evicted, the operator and the node have it in the record; an undo reads that.
    (found,) = host.history()
    for kept in (own_record(run), parse(RUN, found.events)):
        assert kept is not None
        fields = [(field.path, field.before) for one in kept.objects if one.action == PROVE for field in one.fields]
        assert fields == [((EVICT, "shop/late"), "uid-late")]
        assert [change.name for change in plan_undo(kept, {"/api/v1/nodes/w1": api.one("Node", "w1")}).actions] == []


def test_keep_cordon(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    refuse_second(api)
    run = drive(host, api, keep_cordon=True)
    assert cordon(api) == (True, RUN) and outcomes(run)[0] == ("Node w1", "done")
    said = "\n".join(told)
    assert "keep_cordon: Node w1 stay cordoned; to uncordon: pyinfra INVENTORY deploys/uncordon.py --data nodes=w1" in said
    assert "Moved until then, and not coming back: shop/web-1-0" in told


def test_a_cordon_of_someone_else_stays(host: RecordHost, told: list[str]) -> None:
    api = cluster(manager="kubectl-cordon")
    refuse_second(api)
    run = drive(host, api)
    assert cordon(api) == (True, "") and [step.action for step in run.steps] == ["evict", "evict", "prove"]
    said = "\n".join(told)
    assert "cordoned by kubectl-cordon" in said and "that cordon stays" in said and "uncordoning what this run cordoned" not in said


def test_an_uncordon_that_fails_is_a_warning_with_the_command(host: RecordHost, told: list[str]) -> None:
    api = cluster()
    refuse_second(api)

    def at(run: DrainRun, write: Write) -> None:
        if "unschedulable" in (write[2].get("spec") or {}) and not write[2]["spec"]["unschedulable"]:
            api.one("Node", "w1")["spec"]["unschedulable"] = True  # a tool that sets it again

    run = drive(host, api, at)
    said = "\n".join(told)
    assert cordon(api)[0] and outcomes(run)[0] == ("Node w1", "done")
    assert (
        "WARNING: Node w1 is STILL CORDONED by this run: " in said
        and "uncordon it: pyinfra INVENTORY deploys/uncordon.py --data nodes=w1" in said
    )


def test_pods_that_ended_in_another_way_have_their_own_row() -> None:
    def step(number: int, how: str, outcome: str = "done", why: str = "") -> SimpleNamespace:
        return SimpleNamespace(
            name=f"pod shop/web-{number}", summary="of web", action=EVICT, outcome=outcome, how=how, why=why, seconds=1.0
        )

    moved = [step(number, f"evicted; gone; {number} of Deployment shop/web are Ready") for number in range(40)]
    odd = [
        step(40, "it was gone already"),
        step(41, "evicted; gone; no replacement is waited for: daytwo does not count pods of a Job"),
        step(42, "", "failed", "the API server refused its eviction for 60 s: a"),
        step(43, "", "failed", "the API server refused its eviction for 60 s: b"),
    ]
    found = rows(SimpleNamespace(steps=[*moved, *odd]))  # type: ignore[arg-type]
    assert [row[0] for row in found] == ["40 pods: of web", *(f"pod shop/web-{number}" for number in range(40, 44))]
    assert found[0][-1] == "evicted; gone; 0-39 of Deployment shop/web are Ready"
