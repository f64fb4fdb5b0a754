"""The main job on a real cluster: a gate turned on, found as wanted, and taken out again, byte for byte."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration import operator
from tests.integration.operator import COMPONENTS, GATE, LOCKED, MANIFESTS, Started, data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

NODES = ("w1", "w2", "cp1")
# The most that a node may cost in commands and transfers over SSH; and each further change on it, whose start is judged before and after.
NO_CHANGE, CHANGE, FURTHER = 4, 10, 3


@pytest.fixture(scope="module", autouse=True)
def working_pods(lab: Lab) -> Iterator[None]:
    """A working pod on each worker, which nothing in this module may restart."""
    for node in ("w1", "w2"):
        lab.run_pod(f"app-{node}", node)
    before = operator.pods(lab)
    assert set(before) == {"app-w1", "app-w2"}
    yield
    after = operator.pods(lab)
    lab.kubectl("delete", "pod", "app-w1", "app-w2", "--now")
    operator.forget(lab)
    assert after == before, "a working pod was restarted"


@pytest.fixture(autouse=True)
def settled(lab: Lab) -> None:
    """The control plane is whole before a test: what lost its API server in the one before is back."""
    wait_for(lambda: control_plane_is_whole(lab), "the control plane to be whole", 600)


def control_plane_is_whole(lab: Lab, other_than: dict[str, tuple[str, ...]] | None = None) -> bool:
    """All components run and are ready; with `other_than` as other processes than those."""
    told = lab.kubectl("get", "pods", "-n", "kube-system", "-o", "json", check=False)
    if not told or not lab.kubectl("get", "--raw", "/readyz", check=False):
        return False
    states = [state for pod in json.loads(told)["items"] for state in pod["status"].get("containerStatuses", [{"ready": False}])]
    if not all(state["ready"] for state in states):
        return False
    running = operator.processes(lab, "cp1")
    if other_than and any(running.get(name, ())[:2] == other_than[name][:2] for name in COMPONENTS):
        return False
    return set(COMPONENTS) <= set(running)


@pytest.fixture
def watched(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """Every name that appears in cp1's manifests directory while the test runs, from inotify."""
    log = tmp_path / "names"
    with log.open("w") as out:
        watch = subprocess.Popen(
            [
                "ssh",
                "-F",
                str(lab.ssh_config),
                "cp1",
                f"inotifywait -m -q -e create -e moved_to -e moved_from -e modify -e delete --format '%e %f' {MANIFESTS} & echo ready; cat; kill $!",
            ],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    wait_for(lambda: "ready" in log.read_text(), "inotifywait on cp1")
    yield log
    assert watch.stdin is not None
    watch.stdin.close()
    watch.wait(timeout=120)


# Components of each node that such a run changes. What one costs is the same whichever it is, but for the API server, which takes the others'
# leases with it: it gets a gate on the older minor (test_older_minor.py), and flags and their undo in test_control_plane_flags.py. The
# controller-manager gets a flag in docs/runbooks/control-plane-flag.md, and gates in the slow run below.
PARTS = ("kube-scheduler", "kubelet")


@pytest.mark.parametrize(
    ("nodes", "parts"),
    [
        # Runs over all nodes: the quickstart's and the runbooks'.
        pytest.param(("w1", "cp1"), PARTS, id="a worker and the control plane"),
        # Repeats what the run before shows, with the API server.
        pytest.param(("cp1",), ("kube-apiserver", "kube-controller-manager", *PARTS), id="API server too", marks=pytest.mark.slow),
    ],
)
def test_on_again_and_absent(lab: Lab, nodes: tuple[str, ...], parts: tuple[str, ...], watched: Path) -> None:
    """Of a worker and a control plane: as a dry run showed it, within the uses of SSH that a node may cost, and back to the same bytes."""
    before = {node: operator.files(lab, node) for node in nodes}
    old = {node: running(lab, node, parts) for node in nodes}
    where = {"only": ",".join(nodes), "components": ",".join(parts)}

    dry = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", **where)).ended(0)
    assert {node: operator.files(lab, node) for node in nodes} == before, "a dry run changed a file"
    assert {node: running(lab, node, parts) for node in nodes} == old, "a dry run restarted something"

    cursors = {node: operator.journal_cursor(lab, node) for node in nodes}
    on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", **where)).ended(0)
    assert on.plan == dry.plan != "", "what was carried out is not the plan that was shown"
    new = {node: running(lab, node, parts) for node in nodes}
    for node in nodes:
        used = operator.ssh_uses(lab, node, cursors[node])
        print(f"{node}: a change took {used} commands and transfers over SSH")
        # The control plane is asked for the proof of all.
        changes = sum(map(len, old.values())) if node == "cp1" else len(old[node])
        assert used <= CHANGE + FURTHER * (changes - 1)
        assert operator.effective(lab, node, GATE)
        for name in old[node]:
            assert new[node][name][:2] != old[node][name][:2], f"{name} is the old process"
            row = re.search(
                rf"^{node} +{name} +{GATE} +false \(default\) +true \(set\) +confirmed .*gates in /metrics", on.out, re.MULTILINE
            )
            assert row, on.out
            assert name == "kubelet" or operator.gates_of(new[node][name]) == f"{GATE}=true"

    cursors = {node: operator.journal_cursor(lab, node) for node in nodes}
    settled = {node: operator.files(lab, node) for node in nodes}
    again = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", **where)).ended(0)
    for node in nodes:
        used = operator.ssh_uses(lab, node, cursors[node])
        print(f"{node}: finding all as wanted took {used} commands and transfers over SSH")
        assert used <= NO_CHANGE
        assert running(lab, node, parts) == new[node] and operator.files(lab, node) == settled[node], "the second run changed something"
    assert "0 changes on 0 nodes" in again.out and "confirmed" not in again.out

    pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", **where), brief=True).ended(0)
    for node in nodes:
        assert operator.files(lab, node) == before[node], "the files are not as before the first run"
        assert not operator.effective(lab, node, GATE)
        arguments = {name: found[2:] for name, found in running(lab, node, parts).items()}
        assert arguments == {name: found[2:] for name, found in old[node].items()}

    names = {line.split(" ", 1)[1] for line in watched.read_text().splitlines() if line != "ready" and " " in line.strip()}
    assert {name for name in names if name and not name.startswith(".")} == {f"{name}.yaml" for name in parts if name != "kubelet"}, names


def running(lab: Lab, node: str, parts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The processes of these components on a node."""
    return {name: found for name, found in operator.processes(lab, node).items() if name in parts}


def test_originals_lie_elsewhere(lab: Lab) -> None:
    """What the runs before have left on cp1: directories 0700, files 0600 or as the original, sums that fit."""
    told = lab.run(
        "cp1",
        "cd /var/lib/daytwo/changes && stat -c '%a %n' . * */before && for d in */before; do (cd $d && sha256sum -c --quiet SHA256SUMS) || exit 1; done",
    )
    listed = [line.split(" ", 1) for line in told.stdout.splitlines()]
    assert listed and all(mode == "700" for mode, _ in listed), listed
    states = lab.run("cp1", "cat /var/lib/daytwo/changes/*/state").stdout
    assert "state=confirmed" in states and "state=applying" not in states


def test_status_tells_what_is_there(lab: Lab) -> None:
    told = pyinfra("status", "-y").ended(0)
    for pattern in (
        r"^w2 +plain +kubelet +v1\.",
        r"^w1 +kubeadm +kubelet",
        r"^cp1 +kubeadm +kube-apiserver",
        r"^w2 +/etc/default/kubelet +- +absent",
    ):
        assert re.search(pattern, told.out, re.MULTILINE), told.out


def test_works_for_a_user_with_sudo_and_password(lab: Lab) -> None:
    told = pyinfra("status", "-y", "--limit", "w1", *data(ssh_user="ops", _sudo="true", _sudo_password="ops")).ended(0)
    assert re.search(r"^w1 +kubeadm +kubelet", told.out, re.MULTILINE)


# ---- unusual paths


@dataclass(frozen=True)
class Moved:
    """Commands that move what daytwo edits on a node to where nobody would guess it, and back; then the paths that a run touches."""

    away: str
    back: str
    components: str
    touched: frozenset[str]


PATHS = "/etc/systemd/system/kubelet.service.d/50-paths.conf"
IGNORED = "export KUBELET_EXTRA_ARGS=--v=9"
UNIT = "/etc/systemd/system/kubelet.service"
RESTART = "systemctl daemon-reload && systemctl restart kubelet"
UNUSUAL = {
    "w1": Moved(
        f"mkdir -p {PATHS.rpartition('/')[0]} '/srv/kube let' && cp /var/lib/kubelet/config.yaml '/srv/kube let/kubelet conf' && printf '%s\\n'"
        f" '[Service]' \"Environment=\\\"KUBELET_CONFIG_ARGS='--config=/srv/kube let/kubelet conf'\\\"\" >{PATHS} && {RESTART}",
        f"rm -rf {PATHS} '/srv/kube let'; {RESTART}",
        "kubelet",
        frozenset({"/srv/kube let/kubelet conf"}),
    ),
    "w2": Moved(
        f"mkdir -p /srv/env && sed -i 's|^EnvironmentFile=.*|EnvironmentFile=-/srv/env/kubelet words|' {UNIT}"
        f" && printf '# mine\\n{IGNORED}\\nKUBELET_EXTRA_ARGS=\"--feature-gates= --v=3\"' >'/srv/env/kubelet words' && {RESTART}",
        f"sed -i 's|^EnvironmentFile=.*|EnvironmentFile=-/etc/default/kubelet|' {UNIT}; rm -rf /srv/env; {RESTART}",
        "kubelet",
        frozenset({"/srv/env/kubelet words"}),
    ),
    "cp1": Moved(
        f"mkdir -p /srv/static && cp -a {MANIFESTS}/. /srv/static/ && sed -i 's|^staticPodPath:.*|staticPodPath: /srv/static|'"
        " /var/lib/kubelet/config.yaml && systemctl restart kubelet",
        f"sed -i 's|^staticPodPath:.*|staticPodPath: {MANIFESTS}|' /var/lib/kubelet/config.yaml; systemctl restart kubelet; rm -rf /srv/static",
        "kube-scheduler,kubelet",
        frozenset({"/srv/static/kube-scheduler.yaml", "/var/lib/kubelet/config.yaml"}),
    ),
}


@pytest.mark.parametrize("nodes", [("w1", "w2"), pytest.param(("cp1",), marks=pytest.mark.slow)], ids=["workers", "cp1"])
def test_unusual_paths(lab: Lab, nodes: tuple[str, ...]) -> None:
    """Configuration, environment file and manifests directory where nobody would guess them. In the environment file of w2 a line looks set
    and is not, which is said; the gate goes into the empty list of the other."""
    moved = at_home = {node: operator.processes(lab, node) for node in nodes}
    try:
        for node in nodes:
            lab.run(node, UNUSUAL[node].away)
        if "cp1" in nodes:
            wait_for(lambda: control_plane_is_whole(lab, other_than=at_home["cp1"]), "the moved static pods", 600)
        if "w2" in nodes:
            wait_for(lambda: "--v=3" in operator.processes(lab, "w2").get("kubelet", ()), "the kubelet of w2 with its environment file")
        moved = {node: operator.processes(lab, node) for node in nodes}
        before = {node: operator.files(lab, node) for node in nodes}
        chosen = {"only": ",".join(nodes), "components": UNUSUAL[nodes[0]].components}
        on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", **chosen))
        assert on.code == 0 and all(operator.effective(lab, node, GATE) for node in nodes), on.all
        if "w2" in nodes:
            assert "/srv/env/kubelet words, line 2: systemd ignores this, and does not set KUBELET_EXTRA_ARGS: " in on.out, on.all
            arguments = operator.processes(lab, "w2")["kubelet"]
            assert [word for word in arguments if word.startswith("--feature-gates")] == [f"--feature-gates={GATE}=true"]
            assert "--v=9" not in arguments
        again = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", **chosen))
        assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
        for node in nodes:
            now = operator.files(lab, node).items()
            assert {path for path, digest in now if before[node].get(path) != digest} == UNUSUAL[node].touched
        back = pyinfra("rollback", "-y", brief=True)
        assert back.code == 0 and {node: operator.files(lab, node) for node in nodes} == before, back.all
    finally:
        for node in nodes:
            lab.run(node, UNUSUAL[node].back)
        if "cp1" in nodes:
            wait_for(lambda: control_plane_is_whole(lab, other_than=moved["cp1"]), "the control plane at its old place", 600)


@pytest.mark.parametrize("place", [UNIT, "/usr/lib/systemd/system/kubelet.service"])
def test_a_unit_that_reads_no_variable(lab: Lab, place: str) -> None:
    """The operator's is edited where its command stands; a package's is left alone, and a drop-in copies its command."""
    dropin = f"{UNIT}.d/90-daytwo-feature-gates.conf"
    own = place == UNIT
    lab.run("w2", f"cp -a {UNIT} /root/kubelet.service && sed -i -e '/KUBELET_EXTRA_ARGS/d' -e 's/--v=2 .*/--v=2/' {UNIT}")
    lab.run("w2", f"{'true' if own else f'mv {UNIT} {place}'} && systemctl daemon-reload && systemctl restart kubelet")
    try:
        before, old = operator.files(lab, "w2"), operator.processes(lab, "w2")
        on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=true", only="w2")).ended(0)
        now = operator.files(lab, "w2")
        assert {path for path in now if now[path] != before.get(path)} == {UNIT if own else dropin}
        assert (f"copies ExecStart= of {place}" in on.out) is not own, on.all
        assert operator.gates_of(operator.processes(lab, "w2")["kubelet"]) == f"{GATE}=true" and operator.effective(lab, "w2", GATE)
        pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}=absent", only="w2"), brief=True).ended(0)
        assert operator.files(lab, "w2") == before and operator.processes(lab, "w2")["kubelet"][2:] == old["kubelet"][2:]
    finally:
        lab.run(
            "w2", f"rm -f {place} && mv /root/kubelet.service {UNIT}; rm -rf {UNIT}.d; systemctl daemon-reload; systemctl restart kubelet"
        )


# ---- refusals


# The kubelet's own checkpoints under /var/lib/kubelet, which it rewrites whenever its pods change.
CHECKPOINTS = ("allocated_pods_state", "actuated_pods_state", "cpu_manager_state", "memory_manager_state", "dra_manager_state")


def mtimes(lab: Lab) -> set[tuple[str, str]]:
    """Node and "path mtime ctime" of each file that a change may touch, and of all beside them."""
    checkpoints = " ".join(f"-not -name {name}" for name in CHECKPOINTS)
    look = f"find /etc /var/lib/kubelet /var/lib/daytwo /srv -xdev -type f -not -path '*/pods/*' {checkpoints} -printf '%p %T@ %C@\\n' 2>/dev/null"
    with ThreadPoolExecutor() as pool:
        told = pool.map(lambda node: lab.run(node, look, check=False).stdout.splitlines(), NODES)
        return {(node, line) for node, lines in zip(NODES, told, strict=True) for line in lines}


def refused(lab: Lab, *arguments: str, words: tuple[str, ...], inventory: str = "inventories/lab.py") -> None:
    """The run is refused in these words, with exit status 1, and no file on any node has changed."""
    before = mtimes(lab)
    told = pyinfra("feature_gates", "-y", *arguments, inventory=inventory).ended(1)
    for word in words:
        assert word in told.all, told.all
    assert "Traceback" not in told.all
    assert "REFUSED, nothing was written on any node" in told.all
    assert sorted(mtimes(lab) ^ before) == []


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        ("NoSuchGate=true", ("Remove NoSuchGate from the data", "Refused by kube-apiserver, ", "kubelet on cp1, w1, w2")),
        (f"{GATE}=yes", ("=yes is not a boolean; write true, false or absent",)),
        (f"{LOCKED}=false", (f"Remove {LOCKED} from the data: in 1.", "it is locked to true", "Refused by kube-apiserver, ")),
        (GATE, ("has no value",)),
    ],
)
def test_gates_that_are_refused(lab: Lab, gates: str, words: tuple[str, ...]) -> None:
    refused(lab, *data(feature_gates=gates), words=words)


def test_a_component_that_does_not_exist(lab: Lab) -> None:
    refused(lab, *data(feature_gates=f"{GATE}=true", components="kube-proxy"), words=("'kube-proxy' is not one of",))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("printf 'kind: Pod\\n  spec: [\\n' >{file}", ("kube-scheduler.yaml", "is not YAML")),
        # The kubelet takes it, and nothing restarts.
        ("printf 'status: {{}}\\n' >>{file}", ("has such a container", "kube-scheduler.yaml", "occurs twice")),
    ],
)
def test_a_manifest_that_cannot_be_changed(lab: Lab, spoil: str, words: tuple[str, ...]) -> None:
    file, kept = f"{MANIFESTS}/kube-scheduler.yaml", "/root/kube-scheduler.yaml"
    lab.run("cp1", f"cp -a {file} {kept}")
    try:
        # Written elsewhere and moved: the kubelet must not see it half done, nor sed's temporary file.
        lab.run("cp1", f"cp -a {file} /root/spoilt && {spoil.format(file='/root/spoilt')} && mv /root/spoilt {file}")
        refused(lab, *data(feature_gates=f"{GATE}=true"), words=words)
    finally:
        lab.run("cp1", f"mv {kept} {file}")
        wait_for(lambda: scheduler_is_back(lab), "the scheduler")


def scheduler_is_back(lab: Lab) -> bool:
    """By its own name in a pod that stays, and it serves. (One that still ends serves, too.)"""
    told = lab.kubectl("get", "pod", "-n", "kube-system", "kube-scheduler-cp1", "-o", "json", check=False)
    pod = json.loads(told) if told else {"metadata": {"deletionTimestamp": ""}}
    states = {state["name"]: state["ready"] for state in pod.get("status", {}).get("containerStatuses", ())}
    if "deletionTimestamp" in pod["metadata"] or states != {"kube-scheduler": True}:
        return False
    return lab.run("cp1", "curl -ks https://127.0.0.1:10259/healthz", check=False).stdout == "ok"


def test_an_unsupported_kind_of_node(lab: Lab) -> None:
    lab.run("w1", "cp /bin/sleep /run/k3s-server && systemd-run --unit=fake-k3s /run/k3s-server 600")
    try:
        refused(lab, *data(feature_gates=f"{GATE}=true"), words=("w1", "unsupported kind of node", "k3s"))
    finally:
        lab.run("w1", "systemctl stop fake-k3s; rm /run/k3s-server")


def test_a_host_that_does_not_answer_and_a_connection_that_is_lost(lab: Lab, tmp_path: Path) -> None:
    """One run for both: w9 is left out with consent, and the SSH session to w1 is cut in mid-change; the node goes on, and the run finds its
    way back and confirms."""
    inventory = tmp_path / "inventory.py"
    # Nothing listens on port 9 of the node.
    stranger = f"('w9', {{**dict(workers)['w1'], 'ssh_hostname': {lab.address('w1')!r}, 'ssh_port': 9}})"
    inventory.write_text(operator.inventory_of_the_lab(f"workers.append({stranger})"))
    gate = data(feature_gates=f"{GATE}=true", only="w1")
    refused(lab, *gate, words=("w9: unreachable: Could not connect", "skip_unreachable=true"), inventory=str(inventory))
    before = operator.files(lab, "w1")
    run = Started("feature_gates", "-y", *gate, *data(skip_unreachable="true"), inventory=str(inventory))
    run.wait_for("waiting until it is healthy\n")
    operator.cut_ssh(lab, "w1")
    told = run.end()
    assert told.code == 1 and len(re.findall("^LEFT OUT w9: unreachable: Could not connect", told.out, re.MULTILINE)) == 2, told.all
    assert "reconnecting, the node continues" in told.out
    assert told.out.count("waiting until it is healthy\n") == 1, "lines were told twice"
    assert re.search(rf"^w1 +kubelet +{GATE} .* confirmed ", told.out, re.MULTILINE) and operator.files(lab, "w1") != before, told.all
    found = pyinfra("changes", "-y", inventory=str(inventory))
    assert found.code == 1 and "w9: unreachable" in found.all
    # Its undo must name the run: w9 may know a newer one.
    skip = data(skip_unreachable="true")
    unknown = pyinfra("rollback", "-y", *skip, inventory=str(inventory))
    assert unknown.code == 1 and "name the run to undo" in unknown.all and operator.files(lab, "w1") != before, unknown.all
    (run_name,) = set(re.findall(r"data run=(r[\d-]+[0-9a-f]+)|Plan of run (r[\d-]+[0-9a-f]+)", told.out)[0]) - {""}
    undone = pyinfra("rollback", "-y", *skip, *data(run=run_name), inventory=str(inventory), brief=True)
    assert undone.code == 1 and operator.files(lab, "w1") == before, undone.all
    inventory.write_text(operator.inventory_of_the_lab(f"control_plane.append({stranger})"))
    words = ("w9: unreachable: Could not connect", "every control-plane node")
    refused(lab, *data(feature_gates=f"{GATE}=true", skip_unreachable="true"), words=words, inventory=str(inventory))


def test_without_root_rights(lab: Lab) -> None:
    refused(lab, *data(feature_gates=f"{GATE}=true", ssh_user="ops"), words=("needs root", "_sudo = True"))


# ---- what goes wrong on the node


# test_faults.py has a kubelet that does not start, and uses up its start limit too; docs/runbooks/roll-out-halted.md has one of w2.
@pytest.mark.slow
def test_a_kubelet_that_does_not_start_is_put_back(lab: Lab) -> None:
    before, old = operator.files(lab, "w2"), operator.processes(lab, "w2")
    told = pyinfra("feature_gates", "-y", *data(feature_gates="NoSuchGate=true", allow_unknown_gates="true", only="w2")).ended(1)
    assert re.search(r"^w2 +kubelet +NoSuchGate .* reverted .*unrecognized feature gate: NoSuchGate", told.out, re.MULTILINE), told.out
    assert operator.files(lab, "w2") == before
    new = operator.processes(lab, "w2")
    assert new["kubelet"][2:] == old["kubelet"][2:] and new["kubelet"][:2] != old["kubelet"][:2]
    # The API may still have it that the node was away.
    lab.kubectl("wait", "--for=condition=Ready", "node/w2", "--timeout=280s")


# test_control_plane_flags.py has the only API server that does not start, with a file of its own; test_rollout.py one of three, by a gate.
@pytest.mark.slow
def test_the_only_apiserver_that_does_not_start_is_put_back(lab: Lab) -> None:
    before, old = operator.files(lab, "cp1"), operator.processes(lab, "cp1")
    told = pyinfra(
        "feature_gates", "-y", *data(feature_gates="NoSuchGate=true", allow_unknown_gates="true", only="cp1", components="kube-apiserver")
    ).ended(1)
    assert re.search(r"^cp1 +kube-apiserver +NoSuchGate .* reverted .*unrecognized feature gate: NoSuchGate", told.out, re.MULTILINE), (
        told.out
    )
    assert operator.files(lab, "cp1") == before
    new = operator.processes(lab, "cp1")
    assert new["kube-apiserver"][2:] == old["kube-apiserver"][2:] and new["kube-apiserver"][:2] != old["kube-apiserver"][:2]
    assert new["kubelet"] == old["kubelet"]
    assert lab.kubectl("get", "--raw", "/readyz") == "ok"


@pytest.mark.slow
def test_a_static_pod_that_does_not_come_back_by_itself(lab: Lab) -> None:
    """The kubelet is restarted while its only API server is away: it then cleans up no pods, and the old manifest alone does not
    help (kubernetes#112814). The node goes up the ladder until the old API server is back."""
    before, old = operator.files(lab, "cp1"), operator.processes(lab, "cp1")
    wanted = data(feature_gates="NoSuchGate=true", allow_unknown_gates="true", only="cp1", components="kube-apiserver")
    run = Started("feature_gates", "-y", *wanted)
    run.wait_for("waiting until it is healthy\n")
    lab.run("cp1", "while curl -ks -o /dev/null https://127.0.0.1:6443/livez; do sleep 0.2; done; systemctl restart kubelet", timeout=600)
    told = run.end()
    assert told.code == 1
    print(told.out)
    assert "cp1 kube-apiserver: reverted" in told.out
    assert operator.files(lab, "cp1") == before
    new = operator.processes(lab, "cp1")
    assert new["kube-apiserver"][2:] == old["kube-apiserver"][2:]
    assert lab.kubectl("get", "--raw", "/readyz") == "ok"
