"""Machines turned off and on in a real cluster, by BMCs that press the buttons of nodes; a BMC that lies, a machine that hangs, one that does
not wake."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from roles.engine.outage import read_mark
from roles.engine.outage.mark import OUTAGE
from roles.engine.power import HostPower, PowerError, Switch, switch_of
from tests.integration import operator, reading
from tests.integration.draining import fate, get
from tests.integration.operator import ROOT, Outcome, data, pyinfra, refused, run_of, says, wait_for
from tests.integration.reading import Desk, Reading
from tests.lab import Lab, bmc

# Takes the order, and goes on.
HANGS = """#!/bin/sh
case "$*" in poweroff) exit 0 ;; esac
exec /usr/bin/systemctl "$@"
"""


def inventory(folder: Path, **power: dict[str, Any]) -> str:
    """An inventory of the lab whose nodes have these data keys `power`."""
    source = str(ROOT / "inventories/lab.py")
    lines = [
        "import runpy",
        f"_lab, _power = runpy.run_path({source!r}), {power!r}",
        "def switched(hosts): return [(name, {**own, **({'power': _power[name]} if name in _power else {})}) for name, own in hosts]",
        "control_plane, workers = switched(_lab['control_plane']), switched(_lab['workers'])",
    ]
    path = folder / "inventory.py"
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def power(where: str, *arguments: str, **values: str) -> Outcome:
    return pyinfra("power", *data(**values), *arguments, "-y", inventory=where)


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


# A switch that loses its first order, as without mains: the next one comes after somebody has repaired that.
LOSES = """#!/bin/sh
if [ "$1" = on ] && mkdir {lost} 2>/dev/null; then exit 0; fi
cd {root} && exec {program} "$1"
"""


def desk_with_plug(lab: Lab, folder: Path) -> Desk:
    """Where an operator has the program `plug`, which switches w1."""
    made = Desk.made(lab, folder)
    program = shlex.join(bmc.programs("w1")["on"][:-1])
    plug = made.tools / "plug"
    plug.write_text(LOSES.format(lost=folder / "lost", root=ROOT, program=program))
    plug.chmod(0o755)
    (made.project / "inventories/prod.py").write_text(
        Path(inventory(folder, w1=bmc.programs("w1", **{verb: [str(plug), verb] for verb in ("on", "off", "status")}))).read_text()
    )
    return made


@pytest.mark.lab
def test_off_for_the_night_and_the_runbook_of_a_machine_that_does_not_wake(lab: Lab, tmp_path: Path) -> None:
    with bmc.redfish("w1", tmp_path) as found:
        where = inventory(tmp_path, w1=found)
        before = lab.boot_id("w1")
        told = power(where, power_off="w1", reason="for the night", off_timeout="150")
        assert told.code == 0, told.all
        says(told, "its BMC says off; its Node is NotReady", "nothing answers on the wire", "no volume attached", "it stays cordoned")
        assert f"deploys/rollback.py --data run={run_of(told)} --data skip_unreachable=true" in " ".join(told.out.split())
        assert not lab.powered("w1") and fate(lab, "w1") == (True, "power-off", "for the night")
        listed = power(where, format="json")
        assert listed.code == 0, listed.all
    (own,) = json.loads(listed.out)["hosts"]
    assert (own["host"], own["bmc"], own["ready"], own["off"], own["waiting"]) == ("w1", "off", False, True, [])
    assert re.fullmatch(rf"power-off since .* by run {run_of(told)}: for the night", own["mark"])
    # The lab's certificates are of today, and last a year.
    assert {due["due"]: due["severity"] for due in own["dues"]} == dict.fromkeys(("client-certificate", "ca", "a-year"), "note")
    left = (datetime.fromisoformat(own["wake_by"]) - datetime.now(UTC)).days
    assert 300 <= left <= 330, own
    mark = read_mark(get(lab, "node", "w1"))
    assert mark is not None and mark.certificate and mark.authority
    assert bmc.PASSWORD not in told.all + listed.all
    path = re.search(r"Record of the run: (\S+)", told.out)
    assert path and bmc.PASSWORD not in Path(path[1]).read_text()

    Reading(desk_with_plug(lab, tmp_path), reading.read("machine-does-not-wake")).all()
    assert fate(lab, "w1") == (False, "", "") and lab.boot_id("w1") not in (None, before)


@pytest.mark.lab
def test_a_bmc_that_lies_and_nodes_that_must_stay_on(lab: Lab, tmp_path: Path) -> None:
    lies = inventory(tmp_path, w2=bmc.programs("w2", status=["echo", "off"]))
    told = power(lies, power_off="w2")
    assert told.code == 1, told.all
    says(told, "its BMC says off while it answers: it is the BMC of another machine, or it lies")
    assert fate(lab, "w2") == (False, "", "") and lab.powered("w2")

    lab.kubectl("cordon", "w2")
    where = inventory(tmp_path, cp1=bmc.programs("cp1"), w2=bmc.programs("w2"))
    refused(power(where, power_off="cp1,w2"), "cp1: it is a control-plane node: daytwo turns none off", "has cordoned it, not daytwo")
    lab.kubectl("uncordon", "w2")
    assert lab.powered("cp1") and lab.powered("w2")


@pytest.mark.lab
@pytest.mark.slow  # each witness, the cut and the cordon are shown by unit tests, too
def test_a_machine_that_hangs_in_its_shutdown_and_the_undo_of_its_power_off(lab: Lab, tmp_path: Path) -> None:
    where = inventory(tmp_path, w2=bmc.programs("w2"))
    lab.run("w2", "cat >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl", input=HANGS)
    hung = power(where, power_off="w2", off_timeout="10")
    assert hung.code == 1, hung.all
    says(hung, "NOT OFF after", "it hangs in its shutdown: look at its console", "add --data force_off=w2")
    assert lab.powered("w2") and fate(lab, "w2") == (True, "power-off", "")
    assert json.loads(get(lab, "node", "w2")["metadata"]["annotations"][OUTAGE])["run"] == run_of(hung)

    lab.run("w2", "cat >/usr/local/sbin/systemctl && chmod +x /usr/local/sbin/systemctl", input=HANGS)
    cut = power(where, power_off="w2", force_off="w2", off_timeout="70")
    assert cut.code == 0, cut.all
    says(cut, "it hangs in its shutdown", "cutting its power", "its BMC says off; its Node is NotReady")
    assert not lab.powered("w2") and fate(lab, "w2") == (True, "power-off", "")

    undo = " ".join(cut.out.split()).rpartition("Undo: ")[2].split(" deploys/rollback.py ")[1].split()
    back = pyinfra("rollback", *undo[: undo.index("skip_unreachable=true") + 1], "-y", inventory=where)
    assert back.code == 0, back.all
    says(back, "by SSH and by its kubelet, lease renewed", "as the inventory wants it, versions fit; uncordoned")
    assert fate(lab, "w2") == (False, "", "")
