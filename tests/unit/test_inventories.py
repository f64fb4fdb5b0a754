"""The inventories as pyinfra itself loads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_state
from pyinfra_cli.inventory import make_inventory

from roles.feature_gates import model
from tests.lab.cluster import ssh_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of inventories/ in a folder without a lab."""
    shutil.copytree(ROOT / "inventories", tmp_path / "inventories", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def load(project: Path, name: str, **override: object) -> Inventory:
    with ctx_state.use(State()):  # the loader notes in it which file it reads
        return make_inventory(str(project / f"inventories/{name}.py"), override_data=override, cwd=str(project))


def groups(inventory: Inventory) -> dict[str, list[str]]:
    named = {group: [host.name for host in hosts] for group, hosts in inventory.groups.items() if hosts}
    return {**named, "all": [host.name for host in inventory]}


def desired(inventory: Inventory, host: str) -> model.Desired | None:
    return model.read(host, inventory.get_host(host).data.get)


def test_the_example_for_production(project: Path) -> None:
    inventory = load(project, "prod")
    control_plane = [f"cp{number}.example.net" for number in (1, 2, 3)]
    workers = [f"w{number}.example.net" for number in (1, 2, 3)]
    everyone = [*control_plane, *workers]
    assert groups(inventory) == {"control_plane": control_plane, "workers": workers, "all": everyone, "prod": everyone}
    data = {host.name: host.data.dict() for host in inventory}
    assert [values.pop("ssh_hostname") for values in data.values()] == [f"10.20.0.{last}" for last in (11, 12, 13, 21, 22, 23)]
    # As it stands the example asks for one gate on one host, and nothing else.
    assert {name: values for name, values in data.items() if values} == {"w3.example.net": {"feature_gates": {"NodeSwap": True}}}
    wanted = desired(inventory, "w3.example.net")
    assert wanted is not None and wanted.feature_gates == {"NodeSwap": True}
    assert desired(inventory, "w1.example.net") is None


def test_the_group_data_that_is_commented_out_can_be_used(project: Path) -> None:
    path = project / "inventories/group_data/all.py"
    text, examples = re.subn(r"^# (\w+ = )", r"\1", path.read_text(), flags=re.MULTILINE)
    assert examples >= 4
    path.write_text(text)
    inventory = load(project, "prod")
    data = inventory.get_host("cp1.example.net").data
    assert (data.get("ssh_user"), data.get("_sudo"), data.get("ssh_hostname")) == ("ops", True, "10.20.0.11")
    wanted = desired(inventory, "cp1.example.net")
    assert wanted is not None
    assert (wanted.feature_gates, wanted.components) == ({"InPlacePodVerticalScaling": True}, ("kubelet",))
    # A host's own value takes the place of the group's whole value, and --data of both.
    own = desired(inventory, "w3.example.net")
    assert own is not None and own.feature_gates == {"NodeSwap": True}
    given = desired(load(project, "prod", feature_gates="A=absent"), "w3.example.net")
    assert given is not None and given.feature_gates == {"A": None}


def test_the_labs_nodes(project: Path) -> None:
    config = project / ".lab/ssh_config"
    config.parent.mkdir()
    addresses = {"cp1": "10.77.0.11", "cp2": "10.77.0.12", "w1": "10.77.0.21"}
    config.write_text(ssh_config(addresses, Path("/keys/id"), Path("/keys/known_hosts")))
    inventory = load(project, "lab")
    everyone = list(addresses)
    assert groups(inventory) == {"control_plane": ["cp1", "cp2"], "workers": ["w1"], "all": everyone, "lab": everyone}
    for host in inventory:
        assert host.data.dict() == {
            "ssh_config_file": str(config),
            "ssh_known_hosts_file": "/keys/known_hosts",
            "ssh_strict_host_key_checking": "yes",
        }


def test_without_a_lab_one_sentence_says_so(project: Path) -> None:
    command = [Path(sys.executable).with_name("pyinfra"), "inventories/lab.py", "exec", "--", "true"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
    said = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("-->")]
    assert said == [f"{project}/.lab/ssh_config is missing: the lab is not up; run `make lab` first"]
