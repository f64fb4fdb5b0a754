"""What three witnesses make of a machine, what keeps a node on, and which Node a silent host is."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine import timeouts
from roles.engine.kube.fields import node_of_host
from roles.engine.outage import Mark
from roles.engine.outage.mark import OUTAGE, parse_mark
from roles.engine.power import HostPower, PowerError
from roles.power import turning, witnesses
from roles.power.model import PowerOptions
from roles.power.plan import off_refusals
from roles.power.turning import NotOff, NotOn, Turning, still_there
from roles.power.witnesses import Seen, addresses, heard, kubelet_port
from tests.context import context
from tests.unit.clock import Clock

BOOT = "00000000-53a4-4b4b-9f4f-0123456789ab"
OFF = Seen(bmc="off", quiet=True, silent=True, lease=60.0)
HANGS = Seen(bmc="on", quiet=False, silent=False, answers="ping")


@pytest.mark.parametrize(("bmc", "quiet", "silent"), list(itertools.product(("on", "off", "unknown"), (True, False), (True, False, None))))
def test_only_three_witnesses_make_off(bmc: Any, quiet: bool, silent: bool | None) -> None:
    seen = Seen(bmc=bmc, quiet=quiet, silent=silent)
    assert seen.is_off == (bmc == "off" and quiet and silent is True)
    assert seen.lies == (bmc == "off" and silent is False)


def test_a_machine_without_a_bmc_has_two_witnesses_and_says_so() -> None:
    seen = Seen(asks_bmc=False, quiet=True, silent=True)
    assert seen.is_off and "its driver cannot ask the machine" in str(seen)
    assert not Seen(asks_bmc=False, quiet=True, silent=None).is_off


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["tried ping", "answers ping", "end"], (False, "ping")),
        (["tried ping", "tried port 22", "end"], (True, "")),
        (["tried port 22", "answers port 22", "answers port 22", "end"], (False, "port 22")),
        (["end"], (None, "")),
        (["tried ping"], (None, "")),
    ],
)
def test_what_the_wire_says(lines: list[str], found: Any) -> None:
    assert heard(lines) == found


def test_only_addresses_of_the_node_are_asked() -> None:
    given = [
        ("InternalIP", "10.0.0.7"),
        ("InternalIP", "$(reboot)"),
        ("ExternalIP", "1.2.3.4"),
        ("Hostname", "w1"),
        ("InternalIP", "fd00::1"),
    ]
    node: dict[str, Any] = {"status": {"addresses": [{"type": kind, "address": value} for kind, value in given]}}
    assert addresses(node) == ["10.0.0.7", "fd00::1"] and kubelet_port(node) == 10250
    for port, known in ((10260, 10260), ("1; reboot", 10250), (0, 10250), (70000, 10250)):
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        assert kubelet_port(node) == known


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, **more}, "status": {"phase": "Running"}}


def test_volumes_and_pods_keep_a_node_on() -> None:
    node = {"metadata": {"name": "w1"}, "status": {"volumesInUse": ["csi/a"]}}
    attached = [{"metadata": {"name": f"va-{name}"}, "spec": {"nodeName": name}} for name in ("w1", "w2")]
    agent = pod("agent", ownerReferences=[{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}])
    static = pod("proxy", annotations={"kubernetes.io/config.mirror": "x"})
    assert still_there("w1", node, attached, [pod("web"), agent, static]) == [
        "volumes are in use: csi/a", "volumes are attached: VolumeAttachment va-w1", "pods are left: shop/web",
    ]  # fmt: skip
    assert still_there("w1", {}, [attached[1]], [agent, static]) == []


def test_the_node_of_a_host_that_is_silent() -> None:
    nodes: dict[str, Any] = {
        name: {"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        for name, address in (("w1", "10.0.0.1"), ("node-2", "10.0.0.2"), ("node-3", "10.0.0.2"), ("node-4", "10.0.0.4"))
    }
    assert node_of_host("w1", "x", nodes) is nodes["w1"] and node_of_host("w4", "10.0.0.4", nodes) is nodes["node-4"]
    assert node_of_host("w2", "10.0.0.2", nodes) is None and node_of_host("w9", "10.0.0.9", nodes) is None


def planned(**more: Any) -> Any:
    facts = SimpleNamespace(boot=SimpleNamespace(id=BOOT))
    candidate = SimpleNamespace(
        node=more.pop("node", {"metadata": {"name": "w1"}}), is_control_plane=more.pop("control", False), facts=facts
    )
    return SimpleNamespace(host="w1", what="reboot", why="", refusals=(), candidate=candidate, **more)


def node_with(mark: Mark, manager: str = "daytwo") -> dict[str, Any]:
    field = {"f:spec": {"f:unschedulable": {}}}
    return {
        "metadata": {"name": "w1", "annotations": {OUTAGE: mark.text()}, "managedFields": [{"manager": manager, "fieldsV1": field}]},
        "spec": {"unschedulable": True},
    }  # fmt: skip


def test_who_must_stay_on() -> None:
    own = Mark("r1", "power-off", BOOT)
    assert off_refusals(planned(), "power-off") == off_refusals(planned(node=node_with(own)), "power-off") == []
    assert "control-plane node" in off_refusals(planned(control=True), "power-off")[0]
    assert "has cordoned it, not daytwo" in off_refusals(planned(node=node_with(own, "kubectl")), "power-off")[0]
    assert "first --data power_on=w1" in off_refusals(planned(node=node_with(Mark("r1", "power-off", "other"))), "power-off")[0]


def test_the_reason_is_in_the_mark_and_old_marks_have_none() -> None:
    mark = Mark("r1", "power-off", BOOT, why="for the night")
    assert parse_mark(mark.text()) == mark and parse_mark('{"run": "r1", "purpose": "reboot"}') == Mark("r1", "reboot")


def test_data_that_contradict_themselves() -> None:
    for data, words in (
        ({"power_off": "w1", "power_on": "w1"}, "one run turns nodes off or on"),
        ({"power_off": "w1", "force_off": "w1,w2"}, "force_off: w2 is not in power_off"),
    ):
        with pytest.raises(ValueError, match=words):
            PowerOptions(**data)


# ---- the wait for off


class World:
    """A machine whose witnesses say one thing after the other, and the last one from then on."""

    def __init__(self, *seen: Seen) -> None:
        self.seen, self.cuts, self.notes, self.reached = list(seen), 0, list[Any](), False
        self.driver = HostPower(power={"driver": "command", "on": ["true"], "off": ["true"], "status": ["true"]}).power
        self.host, self.remote = "w1", SimpleNamespace()

    def reaches(self) -> bool:
        return self.reached

    def look(self, *, reached: bool) -> Seen:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def force_off(self) -> None:
        self.cuts += 1
        self.seen = [OFF]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timeouts, "time", made)
    return made


def wait(world: World, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[float, Seen]:
    monkeypatch.setattr(turning, "switch_of", lambda driver: world)
    monkeypatch.setattr(turning, "RunLimit", lambda session: None)
    unused: Any = None
    one = Turning(unused, {}, PowerOptions(power_off=("w1",), off_timeout=60, **options), unused, unused, allow_unproven=False)
    every: Any = world
    return one._await_off(every, every, lambda: True, True, context(note=world.notes.append))


def test_it_is_off_when_all_witnesses_say_so_twice(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, seen = wait(World(HANGS, OFF, HANGS, OFF, OFF), monkeypatch)
    assert seen is OFF and passed == 20


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen(bmc="off", quiet=True, silent=False, answers="ping"), "the BMC of another machine, or it lies"),
        (HANGS, "it hangs in its shutdown: look at its console, or cut its power: add --data force_off=w1"),
        (Seen(bmc="unknown", bmc_why="no answer", quiet=True, silent=True), "it is not proven that it is off"),
        (Seen(bmc="off", quiet=True, silent=None), "it is not proven that it is off"),
    ],
)
def test_what_is_not_off_says_what_each_witness_says(clock: Clock, monkeypatch: pytest.MonkeyPatch, seen: Seen, words: str) -> None:
    world = World(seen)
    with pytest.raises(NotOff, match=words) as raised:
        wait(world, monkeypatch)
    assert str(seen) in str(raised.value) and "stays cordoned" in str(raised.value) and not world.cuts


def test_power_is_cut_by_name_only_once_and_recorded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(HANGS)
    passed, seen = wait(world, monkeypatch, force_off="w1")
    assert seen is OFF and passed >= 60 and world.cuts == 1 and world.notes == [{"event": "force-off", "host": "w1"}]


def test_the_power_of_a_machine_whose_bmc_does_not_say_on_is_never_cut(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Seen(bmc="off", quiet=False, silent=False))
    with pytest.raises(NotOff):
        wait(world, monkeypatch, force_off="w1")
    assert not world.cuts


# ---- before the order, and on


@pytest.mark.parametrize(
    ("bmc", "wire", "words"),
    [
        (("off", ""), (False, "ping"), "says off while it answers"),
        (("unknown", "no answer"), (False, "ping"), "cannot be asked: no answer"),
        (("on", ""), (True, ""), "would prove nothing"),
        (("on", ""), (None, ""), "would prove nothing"),
        (("on", ""), (False, "ping"), ""),
    ],
)
def test_a_witness_that_says_nothing_while_it_is_on_proves_nothing_later(bmc: Any, wire: Any, words: str) -> None:
    seen: Any = SimpleNamespace(bmc=lambda: bmc, neighbour=lambda: wire)
    if not words:
        turning.check_running(seen)
        return
    with pytest.raises(turning.NotDone, match=words):
        turning.check_running(seen)


def test_the_lease_is_timed_by_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(witnesses, "time", clock)
    lease: Any = SimpleNamespace(renewed="t1", duration=40)
    status = "True"
    session: Any = SimpleNamespace(
        asked=lambda ask: lease, fetch=lambda path: {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    )
    nobody: Any = SimpleNamespace(state=lambda: "off")
    one = witnesses.Witnesses(session, {}, "w1", nobody, nobody, asks_bmc=True)
    assert not one.look(reached=True).quiet
    clock.now += 41
    assert not one.look(reached=True).quiet, "its Node is Ready"
    status = "Unknown"
    assert one.look(reached=True).quiet
    lease.renewed = "t2"
    assert not one.look(reached=True).quiet, "it was renewed"


class Sleeper:
    """A machine whose BMC takes the order to go on. `wakes`: then it answers."""

    def __init__(self, *, wakes: bool, asks_bmc: bool = True) -> None:
        self.wakes, self.asks_bmc, self.orders, self.host = wakes, asks_bmc, 0, "w1"
        self.driver = HostPower(power={"driver": "command", "on": ["true"], "off": ["true"], "status": ["true"]}).power
        self.remote = self

    def state(self) -> str:
        return "off" if self.asks_bmc else "unknown"

    def on(self) -> None:
        self.orders += 1

    def ensure_connected(self) -> None:
        if not (self.wakes and self.orders):
            raise turning.RemoteError("w1: unreachable")

    def drop(self) -> None: ...


@pytest.mark.parametrize(("asks_bmc", "orders"), [(True, 1), (False, 13)])
def test_a_machine_that_does_not_wake(clock: Clock, monkeypatch: pytest.MonkeyPatch, asks_bmc: bool, orders: int) -> None:
    """A BMC gets one order; a frame may be lost, so it is sent again."""
    world: Any = Sleeper(wakes=False, asks_bmc=asks_bmc)
    monkeypatch.setattr(turning, "switch_of", lambda driver: world)
    monkeypatch.setattr(turning, "RunLimit", lambda session: None)
    unused: Any = None
    one = Turning(unused, {}, PowerOptions(power_on=("w1",)), unused, unused, allow_unproven=False)
    with pytest.raises(NotOn, match="NOT ON after 60 s"):
        one._await_boot(world, timeouts.Deadline(60), context())
    assert world.orders == orders


@pytest.mark.parametrize("allowed", [False, True])
def test_what_is_not_settled_keeps_it_cordoned(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    monkeypatch.setattr(turning, "RunLimit", lambda session: None)
    unused: Any = None
    one = Turning(unused, {}, PowerOptions(), unused, lambda host: ["gates: MemoryQoS is off"], allow_unproven=allowed)
    if allowed:
        assert one._all_settled("w1") == "NOT PROVEN: gates: MemoryQoS is off"
        return
    with pytest.raises(NotOn, match="gates: MemoryQoS is off; correct that while it is cordoned"):
        one._all_settled("w1")


def test_a_power_switch_that_says_nothing_is_a_witness_that_says_nothing() -> None:
    def fails() -> str:
        raise PowerError("bmc: no answer")

    nobody: Any = SimpleNamespace(state=fails)
    one = witnesses.Witnesses(nobody, {}, "w1", nobody, nobody, asks_bmc=True)
    assert one.bmc() == ("unknown", "bmc: no answer") and one.neighbour() == (None, "")
