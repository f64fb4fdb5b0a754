"""The inventories as pyinfra itself loads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import BaseModel, TypeAdapter
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.base import host_to_connector_data
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient.client import SSHClient
from pyinfra.context import ctx_state

from roles import kubelet_config
from roles.engine.bridge import pyinfra_keys
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import ABSENT
from roles.engine.inputs import names, registry
from roles.engine.inputs.unknown_keys import unknown
from roles.engine.kubelet import drained, find, schema, thresholds
from roles.engine.runs import Options
from roles.engine.transaction import Refusal
from roles.eviction import DesiredThresholds, read_thresholds, wanted
from roles.eviction.model import SETTINGS
from roles.feature_gates import model
from roles.kubelet_config import DesiredFields, plan, read_fields
from roles.priority_classes import DesiredClasses, read_classes
from roles.priority_classes.model import PriorityClass
from tests.lab.cluster import ssh_config
from tests.unit.node import node
from tests.unit.node.node import parse

# To import it is to have Python's threading replaced by gevent's, in this process and for all tests after these.
with patch("gevent.monkey.patch_all"):
    from pyinfra_cli.inventory import make_inventory

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of inventories/ in a folder without a lab."""
    monkeypatch.setenv("SUDO_PASSWORD", "sesame")
    monkeypatch.delenv("LAB", raising=False)
    shutil.copytree(ROOT / "inventories", tmp_path / "inventories", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def load(project: Path, name: str, **override: object) -> Inventory:
    with ctx_state.use(State()):  # the loader notes in it which file it reads
        return make_inventory(str(project / f"inventories/{name}.py"), override_data=override, cwd=str(project))


def groups(inventory: Inventory) -> dict[str, list[str]]:
    named = {group: [host.name for host in hosts] for group, hosts in inventory.groups.items() if hosts}
    return {**named, "all": [host.name for host in inventory]}


def desired(inventory: Inventory, host: str) -> model.DesiredGates | None:
    return model.read_gates(host, inventory.get_host(host).data.get)


def uncommented(project: Path) -> None:
    """Every example of group_data is put in force: a value's first line, and the lines that belong to it."""
    for path in sorted((project / "inventories/group_data").glob("*.py")):
        text, examples = re.subn(r"^# (?=\w+ = |from \w+ import |    \"|\})", "", path.read_text(), flags=re.MULTILINE)
        assert examples >= 2, path
        path.write_text(text)


def full(project: Path) -> Inventory:
    """With all that it has as comments."""
    uncommented(project)
    return load(project, "prod")


def eviction(inventory: Inventory, host: str) -> DesiredThresholds | None:
    data = inventory.get_host(host).data
    return read_thresholds(host, data.get)


def fields(inventory: Inventory, host: str) -> DesiredFields | None:
    return read_fields(host, inventory.get_host(host).data.get)


def of_the_cluster(inventory: Inventory) -> DesiredClasses | None:
    return read_classes([(host.name, host.data.get) for host in inventory])


def test_the_example_for_production(project: Path) -> None:
    inventory = load(project, "prod")
    control_plane = [f"cp{number}.example.net" for number in (1, 2, 3)]
    workers = [f"w{number}.example.net" for number in (1, 2, 3)]
    everyone = [*control_plane, *workers]
    canaries = {"canaries": ["w1.example.net"]}
    assert groups(inventory) == {"control_plane": control_plane, "workers": workers, **canaries, "all": everyone, "prod": everyone}
    data = {host.name: host.data.dict() for host in inventory}
    assert [values.pop("ssh_hostname") for values in data.values()] == [f"10.20.0.{last}" for last in (11, 12, 13, 21, 22, 23)]
    # As it stands the example asks for one gate on one host, and nothing else.
    assert {name: values for name, values in data.items() if values} == {"w3.example.net": {"feature_gates": {"NodeSwap": True}}}
    wanted = desired(inventory, "w3.example.net")
    assert wanted is not None and wanted.feature_gates == {"NodeSwap": True}
    assert desired(inventory, "w1.example.net") is None
    for host in everyone:
        assert eviction(inventory, host) is None and fields(inventory, host) is None
    assert of_the_cluster(inventory) is None


def test_the_group_data_that_is_commented_out_can_be_used(project: Path) -> None:
    inventory = full(project)
    data = inventory.get_host("cp1.example.net").data
    assert (data.get("ssh_user"), data.get("_sudo"), data.get("ssh_hostname")) == ("ops", True, "10.20.0.11")
    wanted = {host.name: desired(inventory, host.name) for host in inventory}
    found = {name.partition(".")[0]: (gates.feature_gates, gates.components) for name, gates in wanted.items() if gates}
    on_control_plane = {"HPAScaleToZero": True, "NodeSwap": None}, COMPONENTS
    # A group's value takes the place of that for all, and of that for all only.
    assert found["cp1"] == found["cp3"] == on_control_plane
    assert found["w1"] == found["w2"] == ({"HPAScaleToZero": False, "NodeSwap": None}, ("kubelet",))
    # A host's own value takes the place of the group's whole value, and --data of both.
    own = desired(inventory, "w3.example.net")
    assert own is not None and own.feature_gates == {"NodeSwap": True}
    given = desired(load(project, "prod", feature_gates="A=absent"), "w3.example.net")
    assert given is not None and given.feature_gates == {"A": None}


def test_every_example_is_taken_by_the_model_that_reads_it(project: Path) -> None:
    inventory = full(project)
    named = set()
    for path in (ROOT / "inventories/group_data").glob("*.py"):
        named |= set(re.findall(r"^# (\w+) = ", path.read_text(), re.MULTILINE))
    known = {key.name: key for key in registry.every()}
    read = set()
    for host in inventory:
        data = host.data.dict()
        assert unknown(data, registry.names(), pyinfra_keys(), names(data["own_keys"]) or ()) == {}
        # pyinfra's own types, as its connector checks them.
        host_to_connector_data(SSHConnector.data_cls, SSHConnector.data_meta, host.data)
        for key, value in data.items():
            read.add(key)
            if key in known:
                TypeAdapter(known[key].declared.fields.model_fields[key].rebuild_annotation()).validate_python(value)
            else:
                assert key.startswith("x_") or key in pyinfra_keys()
        assert data["_sudo_password"] == "sesame" and "environ" not in data
    assert named == read - {"ssh_hostname"}


def test_the_pace_of_the_examples_is_the_same_for_all(project: Path) -> None:
    uncommented(project)
    found = {
        Options(**{key: host.data.get(key) for key in ("max_unavailable", "soak", "confirm_timeout")}) for host in load(project, "prod")
    }
    assert {(options.max_unavailable, options.soak, options.confirm_timeout) for options in found} == {("25%", 120, 600)}


def test_the_jump_host_of_the_example_is_understood(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines for ssh_config, as pyinfra's own client reads them: each host by its ssh_hostname, through the bastion."""
    text = (ROOT / "inventories/group_data/all.py").read_text()
    lines = re.findall(r"^#     (Host .*|    .*)$", text, re.MULTILINE)
    config = project / "inventories/ssh_config"
    config.write_text("\n".join(lines) + "\n")
    inventory = full(project)
    hops = []

    class Client(SSHClient):
        def connect(self, hostname: str, **arguments: object) -> None:  # type: ignore[override]
            hops.append((hostname, arguments["username"]))

        def gateway(self, hostname: str, host_port: int, target: str, target_port: int, timeout: object = None) -> str:
            return f"through {hops[-1][0]} to {target}:{target_port}"

    monkeypatch.setattr("pyinfra.connectors.sshuserclient.client.SSHClient", Client)
    monkeypatch.chdir(project)
    for host in inventory:
        data = host.data
        hostname, found, *_ = Client().parse_config(data.get("ssh_hostname"), {}, data.get("ssh_config_file"))
        assert (hostname, found["sock"]) == (data.get("ssh_hostname"), f"through bastion to {data.get('ssh_hostname')}:22")
    assert set(hops) == {("bastion", "ops")}


def test_the_examples_of_eviction_can_be_used(project: Path) -> None:
    inventory = full(project)
    assert eviction(inventory, "cp1.example.net") is None, "they are the workers' alone"
    found = eviction(inventory, "w1.example.net")
    assert found is not None
    hard = {"memory.available": "500Mi", "nodefs.available": "10%", "imagefs.available": "15%", "pid.available": "5%"}
    assert found.eviction_hard == hard
    assert found.eviction_soft == {"memory.available": "1Gi"} and found.eviction_max_pod_grace_period == 60
    assert found.model_fields_set == set(SETTINGS), "each key has an example"
    # On a node as kubeadm leaves it: nothing to refuse, and the kubelet's own thresholds stay where the example names none.
    running = {"evictionHard": dict(thresholds.DEFAULT_HARD), "evictionPressureTransitionPeriod": "5m0s"}
    capacity = {"memory.available": 8 * 2**30, "nodefs.available": 100 * 2**30}
    assert wanted.problems("w1", found, running, capacity) == []
    assert wanted.expected(found, running)["evictionHard"] == {**thresholds.DEFAULT_HARD, **hard}
    # --data takes the place of the whole value.
    given = eviction(load(project, "prod", eviction_hard="memory.available<1Gi"), "w1.example.net")
    assert given is not None and given.eviction_hard == {"memory.available": "1Gi"} and given.eviction_soft == found.eviction_soft


def test_the_examples_of_fields_can_be_used(project: Path) -> None:
    inventory = full(project)
    everywhere, workers = fields(inventory, "cp1.example.net"), fields(inventory, "w1.example.net")
    assert everywhere is not None and everywhere.kubelet_config == {"containerLogMaxSize": "50Mi", "containerLogMaxFiles": 3}
    assert workers is not None and "containerLogMaxFiles" not in workers.kubelet_config, "a group's value takes the place of the whole"
    assert settled(everywhere) == everywhere.kubelet_config
    assert settled(workers) == {
        "maxPods": 200,
        "kubeReserved": {"cpu": "200m", "memory": "1Gi"},
        "systemReserved": {"cpu": "200m", "memory": "500Mi"},
        "shutdownGracePeriod": "60s",
        "shutdownGracePeriodCriticalPods": "20s",
        "containerLogMaxSize": ABSENT,
    }


def settled(found: DesiredFields) -> Mapping[str, Any]:
    """What is written on a node with a kubelet 1.36; a field that a restart does not rightly change would be refused."""
    running = {"systemReserved": {"cpu": "100m", "memory": "500Mi"}}
    state = kubelet_config.KubeletState("w1", find(parse("w1", node.answer())), running, {}, [], {})
    made = plan.settle(found, state)
    return made.fields


def test_the_examples_of_priority_classes_can_be_used(project: Path) -> None:
    uncommented(project)
    found = of_the_cluster(load(project, "prod"))
    assert found is not None
    assert [(item.name, item.value) for item in found.classes] == [("batch", -10), ("web", 1000), ("standard", 100)]
    assert [item.name for item in found.classes if item.global_default] == ["standard"]
    assert {item.key: item.priority_class for item in found.workloads} == {
        "shop/deployment/web": "web",
        "shop/statefulset/db": "web",
        "logs/daemonset/collector": "batch",
    }
    assert {item.priority_class for item in found.workloads} <= {item.name for item in found.classes}


def test_priority_classes_of_a_group_alone_are_refused(project: Path) -> None:
    uncommented(project)
    with (project / "inventories/group_data/workers.py").open("a") as file:
        file.write('priority_classes = {"web": 5}\n')
    with pytest.raises(Refusal, match=r"priority_classes differs between .* belongs to the cluster: .*group_data/all\.py"):
        of_the_cluster(load(project, "prod"))


@pytest.mark.parametrize(
    ("page", "keys"), [("eviction.md", DesiredThresholds), ("kubelet-config.md", DesiredFields), ("priority-classes.md", DesiredClasses)]
)
def test_the_tables_for_operators_have_every_key_and_its_default(page: str, keys: type[BaseModel]) -> None:
    table = (ROOT / "docs" / page).read_text().partition("| data key |")[2].partition("\n\n")[0]
    lines = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    told = {name: default for name, *_, default in lines}
    assert told.keys() == keys.model_fields.keys()
    constant = {name: str(field.default).lower() for name, field in keys.model_fields.items() if isinstance(field.default, bool | int)}
    assert constant and {name: told[name] for name in constant} == constant


def test_the_table_of_a_classs_fields_is_whole() -> None:
    table = (ROOT / "docs/priority-classes.md").read_text().partition("| field of a class |")[2].partition("\n\n")[0]
    named = {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    spelled = {"global_default": "globalDefault", "preemption_policy": "preemptionPolicy"}
    assert named == {spelled.get(name, name) for name in PriorityClass.model_fields} - {"name"}


def test_every_field_that_needs_more_than_a_restart_is_told() -> None:
    told = set(re.findall(r"`([\w.]+)`", (ROOT / "docs/kubelet-config.md").read_text()))
    assert {one.path for one in schema.NEEDS_MORE} | schema.OWNED.keys() | drained.FIELDS <= told


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
