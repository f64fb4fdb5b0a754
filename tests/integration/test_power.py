"""Machines turned off and on in a real cluster, by BMCs that press the buttons of nodes; a BMC that lies, a machine that hangs, one that does
not wake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.engine.outage import read_mark
from roles.engine.outage.mark import OUTAGE
from roles.engine.power import HostPower, PowerError, Switch, switch_of
from tests.integration import operator
from tests.integration.draining import get
from tests.integration.operator import ROOT, Outcome, data, pyinfra, refused, run_of, says, wait_for
from tests.lab import Lab, bmc

# Takes the order, and goes on.
HANGS = """#!/bin/sh
case "$*" in poweroff) exit 0 ;; esac
exec /usr/bin/systemctl "$@"
"""


def inventory(folder: Path, **power: dict[str, Any]) -> str:
    """An inventory of the lab whose workers have these data keys `power`."""
    source = str(ROOT / "inventories/lab.py")
    lines = [
        "import runpy",
        f"_lab, _power = runpy.run_path({source!r}), {power!r}",
        "control_plane = _lab['control_plane']",
        "workers = [(name, {**own, **({'power': _power[name]} if name in _power else {})}) for name, own in _lab['workers']]",
    ]
    path = folder / "inventory.py"
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def power(where: str, *arguments: str, **values: str) -> Outcome:
    return pyinfra("power", *data(**values), *arguments, "-y", inventory=where)


def fate(lab: Lab, node: str) -> tuple[bool, str, str]:
    """Whether it is cordoned, and the purpose and reason of daytwo's mark."""
    item = get(lab, "node", node)
    mark = read_mark(item)
    return bool(item["spec"].get("unschedulable")), mark.purpose if mark else "", mark.why if mark else ""


def until(switch: Switch, state: str) -> None:
    wait_for(lambda: switch.state() == state, f"power {state}", 60)


@pytest.fixture(autouse=True)
def as_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(bmc.VARIABLE, bmc.PASSWORD)
    yield
    for node in lab.workers:
        lab.powered(node, "on")
        lab.machine(node).wait_ssh()
        lab.hang_up(node)
        lab.run(node, "rm -f /usr/local/sbin/systemctl")
    lab.kubectl("uncordon", *lab.workers)
    lab.kubectl("annotate", "node", "--all", f"{OUTAGE}-")
    lab.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=280s")
    operator.forget(lab)


@pytest.mark.lab
def test_each_driver_switches_a_node(lab: Lab, tmp_path: Path) -> None:
    with bmc.redfish("w1", tmp_path) as found:
        switch = switch_of(HostPower(power=found).power)
        assert switch.state() == "on"
        switch.force_off()
        until(switch, "off")
        for other, words in (({"verify": True}, "CERTIFICATE_VERIFY_FAILED"), ({"user": "other"}, "Incorrect username or password")):
            with pytest.raises(PowerError, match=words):
                switch_of(HostPower(power={**found, **other}).power).state()
    with bmc.ipmi("w1", tmp_path) as found:
        switch = switch_of(HostPower(power=found).power)
        assert switch.state() == "off"
        switch.on()
        until(switch, "on")
        switch.force_off()
        until(switch, "off")
    with bmc.waking(lab, "w1") as found:
        switch = switch_of(HostPower(power=found).power)
        assert switch.state() == "unknown" and not lab.powered("w1")
        switch.on()
    assert lab.powered("w1")


@pytest.mark.lab
def test_off_for_the_night_one_that_does_not_wake_and_on_by_the_undo(lab: Lab, tmp_path: Path) -> None:
    with bmc.redfish("w1", tmp_path) as found:
        where = inventory(tmp_path, w1=found)
        before = lab.boot_id("w1")
        told = power(where, power_off="w1", reason="for the night", off_timeout="150")
        assert told.code == 0, told.all
        says(told, "its BMC says off; its Node is NotReady", "nothing answers on the wire", "no volume attached", "it stays cordoned")
        assert not lab.powered("w1") and fate(lab, "w1") == (True, "power-off", "for the night")
        listed = power(where)
        assert listed.code == 0, listed.all
        assert re.search(
            rf"^w1 +redfish .* off +NotReady .*power-off since .* by run {run_of(told)}: for the night", listed.out, re.MULTILINE
        )

        dead = inventory(tmp_path, w1=bmc.programs("w1", on=["true"]))
        asleep = power(dead, power_on="w1", on_timeout="10")
        assert asleep.code == 1, asleep.all
        says(asleep, "NOT ON after", "its BMC says off", "It keeps its cordon")
        assert fate(lab, "w1") == (True, "power-off", "for the night")

        where = inventory(tmp_path, w1=found)
        undo = pyinfra("rollback", *data(run=run_of(told), skip_unreachable="true"), "-y", inventory=where)
        assert undo.code == 0, undo.all
        says(undo, "by SSH and by its kubelet, lease renewed", "as the inventory wants it, versions fit; uncordoned")
        assert fate(lab, "w1") == (False, "", "") and lab.boot_id("w1") not in (None, before)
    assert bmc.PASSWORD not in told.all + listed.all + undo.all
    for one in (told, undo):
        path = re.search(r"Record of the run: (\S+)", one.out)
        assert path and bmc.PASSWORD not in Path(path[1]).read_text()


@pytest.mark.lab
def test_a_bmc_that_lies_and_nodes_that_must_stay_on(lab: Lab, tmp_path: Path) -> None:
    lies = inventory(tmp_path, w2=bmc.programs("w2", status=["echo", "off"]))
    told = power(lies, power_off="w2")
    assert told.code == 1, told.all
    says(told, "its BMC says off while it answers: it is the BMC of another machine, or it lies")
    assert fate(lab, "w2") == (False, "", "") and lab.powered("w2")

    where = inventory(tmp_path, w2=bmc.programs("w2"))
    refused(power(where, power_off="w1"), "w1: it has no data key power")
    lab.kubectl("cordon", "w2")
    refused(power(where, power_off="w2"), "has cordoned it, not daytwo")
    lab.kubectl("uncordon", "w2")


@pytest.mark.lab
@pytest.mark.slow  # that a node which is not proven off keeps its cordon is shown by unit tests, too
def test_a_machine_that_hangs_in_its_shutdown(lab: Lab, tmp_path: Path) -> None:
    where = inventory(tmp_path, w2=bmc.programs("w2"))
    lab.run("w2", "cat >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl", input=HANGS)
    hung = power(where, power_off="w2", off_timeout="10")
    assert hung.code == 1, hung.all
    says(hung, "NOT OFF after", "it hangs in its shutdown: look at its console", "add --data force_off=w2")
    assert lab.powered("w2") and fate(lab, "w2") == (True, "power-off", "")
    assert json.loads(get(lab, "node", "w2")["metadata"]["annotations"][OUTAGE])["run"] == run_of(hung)
    back = power(where, power_on="w2")
    assert back.code == 0, back.all
    says(back, "it had not gone off", "uncordoned")
    assert fate(lab, "w2") == (False, "", "")
