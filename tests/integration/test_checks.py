"""deploys/checks.py and tests/acceptance on a real cluster: all passes on good nodes, and each fault fails the check that names it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integration import operator
from tests.integration.operator import ROOT, data, files, inventory_of_the_lab, journal_cursor, processes, pyinfra, refused, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab
PLANT = (Path(__file__).parent / "plant_fault.sh").read_text()
# What the lab's nodes are like, written down as an operator would.
WISHES = """
feature_gates = {"HPAScaleToZero": False}
# The kubelet and the scheduler do not read it; here they are held to it, too.
all_components = True
kubelet_config = {"maxPods": 110}
eviction_hard = {"memory.available": "50Mi"}
priority_classes = {"planted-web": 1000}
disruption_budgets = {"default/planted-web": {"selector": {"matchLabels": {"app": "planted"}}, "max_unavailable": 1}}
"""
EVERYWHERE = {
    *("kubelet-running", "kubelet-stable", "kubelet-enabled", "kubelet-unit", "kubelet-files", "kubelet-healthy", "kubelet-binary"),
    *("kubelet-arguments", "kubelet-configuration", "kubelet-gates", "kubelet-settings", "eviction-thresholds", "node-ready"),
    *("changes-settled", "new-pods"),
}
CONTROL_PLANE = {
    f"{name}-{what}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler") for what in ("healthy", "gates")
} | {"control-plane-runs", "control-plane-arguments", "control-plane-starts"}
MANIFESTS = {"manifests-clean", "manifests-pods"}
Failures = dict[tuple[str, str], str]


class Report:
    """A JUnit report: what failed, as (node, check) -> why, and what passed or was skipped."""

    def __init__(self, path: Path, code: int, output: str) -> None:
        self.code, self.output = code, output
        self.failed: Failures = {}
        self.passed: set[tuple[str, str]] = set()
        self.skipped: set[tuple[str, str]] = set()
        self.errors: Failures = {}
        assert path.exists(), output
        for case in ElementTree.parse(path).iter("testcase"):
            place = self._place(case)
            children = {child.tag: str(child.get("message")) for child in case}
            if "failure" in children:
                self.failed[place] = children["failure"]
            elif "error" in children:
                self.errors[place] = children["error"]
            elif "skipped" in children:
                self.skipped.add(place)
            else:
                self.passed.add(place)

    @staticmethod
    def _place(case: ElementTree.Element) -> tuple[str, str]:
        name = str(case.get("name"))
        found = re.fullmatch(r"test_node\[(?:ssh://)?(\w+)-([\w-]+)\]|test_cluster\[([\w-]+)\]", name)
        if found is None:
            return str(case.get("classname")), name
        return (found[1], found[2]) if found[1] else ("cluster", found[3])


@pytest.fixture(scope="module")
def inventory(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's inventory in a folder of its own, with group_data that says what its nodes are like."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "inventories/group_data").mkdir(parents=True)
    (folder / "inventories/group_data/all.py").write_text(WISHES)
    made = folder / "inventories/lab.py"
    made.write_text(inventory_of_the_lab())
    return made


@pytest.fixture(scope="module", autouse=True)
def declared(lab: Lab) -> Iterator[None]:
    """The class and the budget that the inventory wants are there."""
    lab.kubectl("delete", "priorityclass,pdb", "planted-web")  # of a run that was killed
    lab.kubectl("create", "priorityclass", "planted-web", "--value=1000")
    lab.kubectl("create", "pdb", "planted-web", "--selector=app=planted", "--max-unavailable=1")
    yield
    lab.kubectl("delete", "priorityclass,pdb", "planted-web")


def deploy(inventory: Path, folder: Path, *arguments: str) -> Report:
    report = folder / "deploy.xml"
    report.unlink(missing_ok=True)
    told = pyinfra("checks", "-y", *data(junit=str(report)), *arguments, inventory=str(inventory))
    return Report(report, told.code, told.all)


def acceptance(folder: Path, *arguments: str) -> Report:
    report = folder / "acceptance.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/acceptance", f"--junit-xml={report}", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=900, stdin=subprocess.DEVNULL
    )
    return Report(report, done.returncode, done.stdout)


def both(inventory: Path, folder: Path) -> tuple[Report, Report]:
    """The same checks by both ways, side by side."""
    with ThreadPoolExecutor() as pool:
        one, other = pool.submit(deploy, inventory, folder), pool.submit(acceptance, folder, f"--inventory={inventory}")
        return one.result(), other.result()


def test_good_nodes_pass_and_nothing_is_touched(lab: Lab, inventory: Path, tmp_path: Path) -> None:
    before = [(files(lab, node), processes(lab, node)) for node in lab.nodes]
    told, accepted = both(inventory, tmp_path)
    for report in (told, accepted):
        assert (report.code, report.failed, report.errors) == (0, {}, {}), report.output
        assert report.passed == {
            *((node, check) for node in lab.nodes for check in EVERYWHERE),
            *((node, check) for node in lab.control_planes for check in CONTROL_PLANE),
            *((node, check) for node in ("cp1", "w2") for check in MANIFESTS),
            ("cluster", "priority-classes"),
            ("cluster", "disruption-budgets"),
        }
    assert re.search(r"^w1 +kubelet-gates +pass +HPAScaleToZero=false in /metrics$", told.output, re.MULTILINE), told.output
    assert re.search(r"^checks: \d+ pass, 0 fail, 0 unknown, \d+ skip$", told.output, re.MULTILINE)
    by_testinfra = acceptance(tmp_path, "--hosts=ssh://cp1,ssh://w1,ssh://w2", f"--ssh-config={lab.ssh_config}", f"--inventory={inventory}")
    assert (by_testinfra.code, by_testinfra.failed) == (0, {}), by_testinfra.output
    # Without a tunnel these two cannot be asked for their gates, and no flag sets them.
    not_told = {("cp1", f"{name}-gates") for name in ("kube-controller-manager", "kube-scheduler")}
    assert by_testinfra.passed == told.passed - not_told and not_told <= by_testinfra.skipped, by_testinfra.output
    assert [(files(lab, node), processes(lab, node)) for node in lab.nodes] == before


# Node -> fault, and what it must be told by; several at once, each on a node of its own.
Round = Mapping[str, tuple[str, str, str]]
ROUNDS: dict[str, Round] = {
    "first": {
        "cp1": ("frozen-scheduler", "kube-scheduler-healthy", "10259/healthz answers nothing"),
        "w1": ("disabled", "kubelet-enabled", "is-enabled says disabled"),
        "w2": (
            "stray",
            "manifests-clean",
            "/etc/kubernetes-node/static/note.txt~: the kubelet reads every file here as a manifest, and this is not a manifest",
        ),
        "cluster": ("lost-class", "priority-classes", "planted-web: does not exist"),
    },
    "second": {
        "cp1": ("edited-environment", "kubelet-arguments", "a restart applies --v=5 (now"),
        "w1": ("other-gate", "kubelet-gates", "kubelet runs with HPAScaleToZero=true, wanted false"),
        "w2": ("other-threshold", "eviction-thresholds", "evictionHard: memory.available is 49Mi, wanted 50Mi"),
    },
    "third": {
        "cp1": ("open-change", "changes-settled", "change planted is revert-failed: its node retries the revert"),
        "w1": ("other-field", "kubelet-settings", "kubelet runs with maxPods=77, wanted 110"),
        "w2": ("twins", "manifests-pods", "it defines the same pod as /etc/kubernetes-node/static/web.yaml"),
    },
    "fourth": {
        "cp1": ("edited-unit", "kubelet-unit", "kubelet.service was edited on disk and systemd has not read it"),
        "w1": ("looping", "kubelet-stable", "systemd starts it again"),
        "w2": ("no-process", "control-plane-runs", "kube-scheduler.yaml defines a kube-scheduler, but none runs on the node"),
    },
    "fifth": {
        "cp1": ("edited-configuration", "kubelet-configuration", "maxPods is 77 in its files, but the kubelet runs with 110"),
        "w1": ("frozen", "kubelet-healthy", "10248/healthz answers nothing"),
        "w2": (
            "replaced-binary",
            "kubelet-binary",
            "/usr/local/bin/kubelet was replaced since the kubelet started, by a file with the same bytes",
        ),
    },
    "sixth": {
        "w1": ("lost-configuration", "kubelet-files", "/var/lib/kubelet/config.yaml: "),
        "w2": ("no-network", "node-ready", "Ready is False"),
    },
    "seventh": {"w1": ("stopped", "kubelet-running", "kubelet.service is inactive")},
}


def plant(lab: Lab, node: str, fault: str, *mend: str) -> None:
    """By a script that knows nothing of daytwo. A fault of the cluster is planted from its first control-plane node."""
    lab.run("cp1" if node == "cluster" else node, " ".join(["sh", "-s", "--", fault, *mend]), input=PLANT)


@contextmanager
def planted(lab: Lab, faults: Round) -> Iterator[None]:
    begun: list[tuple[str, str]] = []
    try:
        for node, (fault, _, _) in faults.items():
            begun.append((node, fault))
            plant(lab, node, fault)
        if any(fault == "no-network" for fault, _, _ in faults.values()):
            wait_for(lambda: ready(lab, "w2") == "False", "w2 not to be Ready")
        yield
    finally:
        for node, fault in begun:
            plant(lab, node, fault, "mend")
        since = datetime.now(UTC)
        for node in lab.nodes:
            wait_for(lambda node=node: well(lab, node), f"{node} to be Ready and its kubelet healthy")
        if any(fault == "frozen-scheduler" for _, fault in begun):
            wait_for(lambda: scheduler_leads(lab, since), "a scheduler that leads, and is healthy")


def well(lab: Lab, node: str) -> bool:
    """By the kubelet itself, too: a node stays Ready for a while without it."""
    healthy = lab.run(node, "curl -s http://127.0.0.1:10248/healthz", check=False).stdout == "ok"
    return healthy and ready(lab, node) == "True"


def scheduler_leads(lab: Lab, since: datetime) -> bool:
    """It renewed its lease after `since`: one that lost it while it was frozen ends, and another begins. This machine's clock is the
    nodes' clock."""
    renewed = lab.kubectl("get", "lease", "-n", "kube-system", "kube-scheduler", "-o", "jsonpath={.spec.renewTime}", check=False).strip()
    serves = lab.run("cp1", "curl -ks https://127.0.0.1:10259/healthz", check=False).stdout == "ok"
    return serves and bool(renewed) and datetime.fromisoformat(renewed) > since


def ready(lab: Lab, node: str) -> str:
    return lab.kubectl("get", "node", node, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}', check=False).strip()


@pytest.mark.parametrize("name", ["first", *(pytest.param(name, marks=pytest.mark.slow) for name in ROUNDS if name != "first")])
def test_each_fault_fails_exactly_the_check_that_names_it(lab: Lab, inventory: Path, tmp_path: Path, name: str) -> None:
    faults = ROUNDS[name]
    with planted(lab, faults):
        told, accepted = both(inventory, tmp_path)
    expected = {(node, check): why for node, (_, check, why) in faults.items()}
    for report, code in ((told, 2), (accepted, 1)):
        assert report.failed.keys() == expected.keys(), report.output
        assert {place: why for place, why in expected.items() if why not in report.failed[place]} == {}, report.failed
        assert (report.code, report.errors) == (code, {}), report.output


@contextmanager
def left_to_hang(lab: Lab) -> Iterator[None]:
    """A frozen API server stays frozen: its kubelet, which ends one that has not answered eight times, asks it a thousand times."""
    manifest, kept = f"{operator.MANIFESTS}/kube-apiserver.yaml", "/root/kube-apiserver.yaml"

    def replaced(command: str) -> None:
        old = processes(lab, "cp1")["kube-apiserver"][:2]
        lab.run("cp1", command)
        wait_for(lambda: processes(lab, "cp1").get("kube-apiserver", old)[:2] != old, "another API server", 600)
        wait_for(lambda: all(well(lab, node) for node in lab.nodes), "all nodes to be Ready", 600)
        # They ended with their API server.
        wait_for(lambda: control_plane_serves(lab), "controller-manager and scheduler", 600)

    patient = "sed '/livenessProbe:/,/failureThreshold:/s/failureThreshold: .*/failureThreshold: 1000/'"
    # Written elsewhere and moved: the kubelet must not see it half done.
    lab.run("cp1", f"cp -a {manifest} {kept} && cp -a {manifest} {kept}.new && {patient} {manifest} >{kept}.new")
    replaced(f"mv {kept}.new {manifest}")
    try:
        yield
    finally:
        replaced(f"mv {kept} {manifest}")


def control_plane_serves(lab: Lab) -> bool:
    asked = "curl -ks https://127.0.0.1:10257/healthz && curl -ks https://127.0.0.1:10259/healthz"
    return lab.run("cp1", asked, check=False).stdout == "okok"


@pytest.mark.slow
def test_an_api_server_that_is_not_well_is_named_and_what_it_would_tell_is_unknown(lab: Lab, inventory: Path, tmp_path: Path) -> None:
    with left_to_hang(lab):
        plant(lab, "cp1", "frozen-apiserver")
        try:
            told = deploy(inventory, tmp_path)
        finally:
            plant(lab, "cp1", "frozen-apiserver", "mend")
            wait_for(lambda: all(well(lab, node) for node in lab.nodes), "all nodes to be Ready", 600)
    assert (told.code, set(told.failed)) == (2, {("cp1", "kube-apiserver-healthy")}), told.output
    unknown = {
        ("cluster", "priority-classes"),
        ("cluster", "disruption-budgets"),
        *((node, check) for node in lab.nodes for check in ("kubelet-gates", "kubelet-settings", "eviction-thresholds", "node-ready")),
    }
    assert set(told.errors) == unknown, told.output


def test_where_a_node_cannot_be_looked_at_the_exit_status_says_so(lab: Lab, inventory: Path, tmp_path: Path) -> None:
    """Logged in as one who is not root, and who does not become it."""
    told = deploy(inventory, tmp_path, "--limit", "w1", *data(ssh_user="ops", priority_classes="planted-web=1000"))
    assert told.code == 1, told.output
    unknown = {("w1", "looked-at"), ("cluster", "priority-classes"), ("cluster", "disruption-budgets")}
    assert set(told.errors) == unknown and not told.failed, told.output
    assert "daytwo needs root on the node and runs as uid 1000; set _sudo = True" in told.errors["w1", "looked-at"]


def test_through_a_jump_host_as_a_user_with_a_password_for_sudo(lab: Lab, inventory: Path, tmp_path: Path) -> None:
    """As the example inventory has it: an ssh_config with a ProxyJump, and group_data that takes the password from the environment."""
    shutil.copytree(inventory.parent, tmp_path / "inventories")
    options = "".join(
        f"    {line.strip()}\n" for line in lab.ssh_config.read_text().splitlines() if re.match(r"\s+(Identity|UserKnown)", line)
    )
    hosts = [f"Host bastion\n    HostName {lab.address('cp1')}\n    HostKeyAlias cp1\n    User ops\n{options}"]
    hosts += [f"Host {lab.address(node)}\n    ProxyJump bastion\n{options}" for node in lab.workers]
    hosts += [f"Host {lab.address('cp1')}\n{options}"]
    (tmp_path / "ssh_config").write_text("".join(hosts))
    pairs = {
        name: [(node, {"ssh_hostname": lab.address(node)}) for node in nodes]
        for name, nodes in (("control_plane", ["cp1"]), ("workers", lab.workers))
    }
    (tmp_path / "inventories/jump.py").write_text("".join(f"{name} = {found!r}\n" for name, found in pairs.items()))
    with (tmp_path / "inventories/group_data/all.py").open("a") as file:
        file.write(f"ssh_config_file = {str(tmp_path / 'ssh_config')!r}\nssh_user = 'ops'\n")
        file.write("_sudo = True\nfrom os import environ\n_sudo_password = environ['SUDO_PASSWORD']\n")
    cursor = journal_cursor(lab, "w1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUDO_PASSWORD", "ops")
        told, accepted = both(tmp_path / "inventories/jump.py", tmp_path)
    for report in (told, accepted):
        assert (report.code, report.failed, report.errors) == (0, {}, {}), report.output
        assert {("w1", "kubelet-healthy"), ("w2", "kubelet-gates"), ("cp1", "kube-apiserver-healthy")} <= report.passed
    logins = lab.run(
        "w1", f"journalctl -t sshd -t sshd-session --after-cursor '{cursor}' --output cat --no-pager | grep 'Accepted .* for ops'"
    ).stdout
    assert logins and all(f"from {lab.address('cp1')} " in line for line in logins.splitlines()), logins


@pytest.mark.parametrize("name", ["checks", "feature_gates", "uninstall"])
def test_a_key_that_no_deploy_reads_is_refused_before_anything(lab: Lab, inventory: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "inventories"
    shutil.copytree(inventory.parent, copy)
    with (copy / "group_data/all.py").open("a") as file:
        file.write('eviction_hrad = {"memory.available": "1Gi"}\n_private = 5\nx_own = 5\n')
    told = pyinfra(name, "-y", *data(rack="5"), inventory=str(copy / "lab.py"))
    where = "cp1, w1, w2: group_data/all.py: eviction_hrad is not a key of daytwo's data; did you mean eviction_hard?"
    refused(told, where, "cp1, w1, w2: --data: rack is not a key of daytwo's data; no deploy reads it")
    assert "_private" not in told.all and "x_own" not in told.all
    # With a way out for each, it goes on.
    if name == "checks":
        told = pyinfra(name, "-y", *data(rack="5", own_keys="rack,eviction_hrad"), inventory=str(copy / "lab.py")).ended(0)
