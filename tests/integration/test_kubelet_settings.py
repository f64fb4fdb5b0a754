"""Eviction thresholds and fields of the kubelet's configuration on real kubelets: set, proven, found as wanted, undone, refused."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from roles.engine.kubelet import schema
from roles.engine.kubelet.thresholds import DEFAULT_HARD
from tests.integration import operator
from tests.integration.checkpoints import configz
from tests.integration.operator import data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

# kubeadm's way, and a plain unit with its configuration elsewhere.
NODES = ("w1", "w2")
EXTRA = "/etc/default/kubelet"
CONFIG = "/var/lib/kubelet/config.yaml"


def eviction(lab: Lab, node: str) -> dict[str, Any]:
    return {name: value for name, value in configz(lab, node).items() if name.startswith("eviction")}


def hard(settings: dict[str, Any]) -> dict[str, str]:
    """The hard thresholds in effect: 0% is the same as not named."""
    return {signal: text for signal, text in settings["evictionHard"].items() if text != "0%"}


@pytest.fixture(scope="module", autouse=True)
def working_pods(lab: Lab) -> Iterator[None]:
    """A working pod on each worker, which nothing in this module may restart."""
    # Of those on w1 one too many for maxPods=1.
    names = {**{f"app-{node}": node for node in NODES}, "app-w1-too": "w1"}
    for name, node in names.items():
        lab.run_pod(name, node)
    before = operator.pods(lab)
    yield
    after = operator.pods(lab)
    lab.kubectl("delete", "pod", *names, "--now")
    operator.forget(lab)
    assert after == before, "a working pod was restarted"


@contextlib.contextmanager
def started_with(lab: Lab, node: str, flag: str) -> Iterator[None]:
    """The node's kubelet with one more flag, from its environment file, which is there or not; and without it again."""

    def runs_with_it() -> bool:
        return flag in operator.processes(lab, node).get("kubelet", ()) and bool(configz(lab, node))

    lab.run(
        node, f"[ ! -e {EXTRA} ] || cp -a {EXTRA} /root/extra; echo 'KUBELET_EXTRA_ARGS=\"{flag}\"' >>{EXTRA} && systemctl restart kubelet"
    )
    try:
        wait_for(runs_with_it, f"the kubelet of {node} with {flag}")
        yield
    finally:
        lab.run(node, f"rm -f {EXTRA}; [ ! -e /root/extra ] || mv /root/extra {EXTRA}; systemctl restart kubelet")
        wait_for(lambda: bool(configz(lab, node)) and not runs_with_it(), f"the kubelet of {node} without {flag}")


@pytest.fixture
def flagged(lab: Lab) -> Iterator[None]:
    """w1 with a flag that beats its configuration file."""
    with started_with(lab, "w1", "--eviction-hard=memory.available<150Mi,nodefs.available<7%"):
        yield


def one_signal_and_no_other(lab: Lab, node: str) -> tuple[operator.Outcome, operator.Outcome]:
    """A threshold is shown, set, found as wanted and undone; what the change and its undo said."""
    before, files, old = eviction(lab, node), operator.files(lab, node), operator.processes(lab, node)
    wish = data(eviction_hard="memory.available<217Mi", only=node)

    dry = pyinfra("eviction", "--dry", *wish)
    assert dry.code == 0 and operator.files(lab, node) == files, dry.all
    assert "left of" in dry.out and "evicts below" in dry.out, "what the thresholds come to on this node was not told"

    on = pyinfra("eviction", "-y", *wish).ended(0)
    was = before["evictionHard"]["memory.available"]
    assert re.search(rf"^{node} +evictionHard.memory.available +{was} +217Mi +confirmed .*/configz", on.out, re.MULTILINE), on.out
    now = eviction(lab, node)
    assert hard(now) == {**hard(before), "memory.available": "217Mi"}
    assert {**now, "evictionHard": None} == {**before, "evictionHard": None}, "another setting of eviction changed"
    new = operator.processes(lab, node)
    assert new["kubelet"][:2] != old["kubelet"][:2]

    again = pyinfra("eviction", "-y", *wish)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
    assert operator.processes(lab, node) == new, "the second run restarted something"

    back = pyinfra("rollback", "-y", brief=True).ended(0)
    assert eviction(lab, node) == before and operator.files(lab, node) == files
    assert operator.processes(lab, node)["kubelet"][2:] == old["kubelet"][2:]
    return on, back


# w1 below, beside an edit of its file. w2 has thresholds changed in a drop-in directory; docs/runbooks/eviction-thresholds.md has both.
@pytest.mark.slow
def test_one_signal_and_no_other(lab: Lab) -> None:
    one_signal_and_no_other(lab, "w2")


@pytest.fixture
def file_of_before(lab: Lab) -> Iterator[None]:
    """The configuration file of w1 ends as it was: `absent` also takes out a line that was there with the default."""
    lab.run("w1", f"cp -a {CONFIG} /root/config.before")
    yield
    lab.run("w1", f"mv /root/config.before {CONFIG}; systemctl restart kubelet")
    wait_for(lambda: bool(configz(lab, "w1")), "the kubelet of w1")


def test_soft_thresholds_with_all_that_belongs_to_them(lab: Lab, file_of_before: None) -> None:
    before = eviction(lab, "w1")
    pyinfra(
        "eviction",
        "-y",
        *data(
            only="w1",
            eviction_soft="memory.available=300Mi,nodefs.available=11%",
            eviction_soft_grace_period="memory.available=1m30s,nodefs.available=2m",
            eviction_minimum_reclaim="memory.available=50Mi",
            eviction_max_pod_grace_period="30",
            eviction_pressure_transition_period="90s",
        ),
    ).ended(0)
    now = eviction(lab, "w1")
    assert now["evictionHard"] == before["evictionHard"]
    assert now["evictionSoft"] == {"memory.available": "300Mi", "nodefs.available": "11%"}
    assert now["evictionMaxPodGracePeriod"] == 30 and now["evictionPressureTransitionPeriod"] == "1m30s"
    pyinfra(
        "eviction",
        "-y",
        *data(
            only="w1",
            eviction_soft="memory.available=absent,nodefs.available=absent",
            eviction_minimum_reclaim="memory.available=absent",
            eviction_max_pod_grace_period="absent",
            eviction_pressure_transition_period="absent",
        ),
        brief=True,
    ).ended(0)
    assert eviction(lab, "w1") == before


@pytest.mark.slow
def test_one_signal_where_the_kubelet_adds_its_defaults(lab: Lab) -> None:
    """mergeDefaultEvictionSettings, 1.33 and later: the signals that the file leaves out have their defaults."""
    if "mergeDefaultEvictionSettings" not in schema.fields(int(lab.version.split(".")[1])):
        pytest.skip(f"a kubelet of {lab.version} has no mergeDefaultEvictionSettings")
    config = "/etc/kubernetes-node/kubelet.yaml"
    lab.run("w2", f"cp -a {config} /root/config && sed -i '/^evictionHard:/,/^[^ ]/{{/^evictionHard:/d;/^ /d}}' {config}")
    lab.run(
        "w2",
        f"printf 'mergeDefaultEvictionSettings: true\nevictionHard:\n  memory.available: 51Mi\n' >>{config}; systemctl restart kubelet",
    )
    try:
        wait_for(lambda: eviction(lab, "w2").get("evictionHard", {}).get("memory.available") == "51Mi", "the kubelet with its defaults")
        before, files = eviction(lab, "w2"), operator.files(lab, "w2")
        assert hard(before) == {**DEFAULT_HARD, "memory.available": "51Mi"}
        pyinfra("eviction", "-y", *data(eviction_hard="nodefs.available=3%", only="w2")).ended(0)
        assert hard(eviction(lab, "w2")) == {**hard(before), "nodefs.available": "3%"}
        pyinfra("rollback", "-y", brief=True).ended(0)
        assert eviction(lab, "w2") == before and operator.files(lab, "w2") == files
    finally:
        lab.run("w2", f"mv /root/config {config}; systemctl restart kubelet")
        wait_for(lambda: eviction(lab, "w2").get("evictionHard", {}).get("memory.available") != "51Mi", "the kubelet as it was")


@pytest.mark.slow
@pytest.mark.usefixtures("flagged")
def test_a_flag_in_the_way(lab: Lab) -> None:
    files = operator.files(lab, "w1")
    told = pyinfra("eviction", "-y", *data(eviction_hard="memory.available=217Mi", only="w1")).ended(0)
    assert "--eviction-hard" in told.out and "move_flags=true" in told.out, "the flag that beats the file was not told"
    assert hard(eviction(lab, "w1")) == {"memory.available": "217Mi", "nodefs.available": "7%"}
    assert "eviction-hard" in " ".join(operator.processes(lab, "w1")["kubelet"]), "it was moved without consent"
    assert pyinfra("rollback", "-y", brief=True).code == 0 and operator.files(lab, "w1") == files

    pyinfra("eviction", "-y", *data(eviction_hard="memory.available=217Mi", only="w1", move_flags="true")).ended(0)
    assert "eviction-hard" not in " ".join(operator.processes(lab, "w1")["kubelet"])
    assert hard(eviction(lab, "w1")) == {"memory.available": "217Mi", "nodefs.available": "7%"}
    assert pyinfra("rollback", "-y", brief=True).code == 0 and operator.files(lab, "w1") == files
    assert eviction(lab, "w1")["evictionHard"]["nodefs.available"] == "7%"


def test_a_drop_in_directory(lab: Lab) -> None:
    """A field that a drop-in sets is changed there; one that no file sets goes to a drop-in of daytwo's own."""
    folder = "/etc/kubernetes/kubelet.conf.d"
    own = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard:\n  nodefs.available: 3%\n"
    lab.run("w2", f"mkdir -p {folder} && cat >{folder}/10-own.conf", input=own)
    try:
        with started_with(lab, "w2", f"--config-dir={folder}"):
            before, files = eviction(lab, "w2"), operator.files(lab, "w2")
            pyinfra(
                "eviction", "-y", *data(eviction_hard="nodefs.available=2%", eviction_minimum_reclaim="nodefs.available=20Mi", only="w2")
            ).ended(0)
            now, changed = eviction(lab, "w2"), operator.files(lab, "w2")
            assert {path for path in changed if changed[path] != files.get(path)} == {f"{folder}/10-own.conf", f"{folder}/90-daytwo.conf"}
            assert hard(now) == {**hard(before), "nodefs.available": "2%"}
            assert now["evictionMinimumReclaim"] == {"nodefs.available": "20Mi"}
            pyinfra("rollback", "-y", brief=True).ended(0)
            assert eviction(lab, "w2") == before and operator.files(lab, "w2") == files
    finally:
        lab.run("w2", f"rm -rf {folder}; rmdir --ignore-fail-on-non-empty {os.path.dirname(folder)}")


@pytest.mark.parametrize("node", ["w1", pytest.param("w2", marks=pytest.mark.slow)])
def test_fields_of_the_configuration(lab: Lab, node: str) -> None:
    before, files = configz(lab, node), operator.files(lab, node)
    wish = data(kubelet_config="maxPods=77,systemReserved.cpu=120m,containerLogMaxSize=11Mi,serializeImagePulls=false", only=node)
    pyinfra("kubelet_config", "-y", *wish).ended(0)
    now = configz(lab, node)
    found = {name for name in {**before, **now} if before.get(name) != now.get(name)}
    assert now["maxPods"] == 77 and now["systemReserved"]["cpu"] == "120m" and now["containerLogMaxSize"] == "11Mi"
    # With parallel pulls allowed the kubelet may set their number beside.
    assert found <= {"maxPods", "systemReserved", "containerLogMaxSize", "serializeImagePulls", "maxParallelImagePulls"}, found
    # The kubelet tells the API with its next look at the node.
    allocatable = ["get", "node", node, "-o", "jsonpath={.status.allocatable.pods}"]
    wait_for(lambda: lab.kubectl(*allocatable) == "77", f"the API to have maxPods of {node}")
    again = pyinfra("kubelet_config", "-y", *wish)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
    pyinfra("rollback", "-y", brief=True).ended(0)
    assert configz(lab, node) == before and operator.files(lab, node) == files


DROPINS = "/etc/systemd/logind.conf.d"
VENDOR = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"


@pytest.fixture
def logind(lab: Lab) -> Iterator[None]:
    """w1's logind ends with the files that it had."""
    yield
    lab.run(
        "w1", f"umount {DROPINS}; rm -rf {DROPINS} {VENDOR}; rmdir --ignore-fail-on-non-empty {os.path.dirname(VENDOR)}; true", check=False
    )
    lab.run("w1", "systemctl restart systemd-logind")


def locks(lab: Lab) -> list[str]:
    """The processes that hold a kubelet's lock on w1."""
    return lab.run("w1", "grep -D skip -l -x WHO=kubelet /run/systemd/inhibit/* | xargs -r sed -n 's/^PID=//p'", check=False).stdout.split()


@pytest.mark.usefixtures("logind")
def test_graceful_shutdown_is_proven_by_its_lock(lab: Lab) -> None:
    """In /configz it is in any case; the kubelet runs without it if logind does not allow what it asks for."""
    wish = data(kubelet_config="shutdownGracePeriod=120s,shutdownGracePeriodCriticalPods=20s", only="w1")
    files = operator.files(lab, "w1")
    lab.run(
        "w1", f"mkdir -p {os.path.dirname(VENDOR)} && printf '[Login]\nInhibitDelayMaxSec=30\n' >{VENDOR}; systemctl restart systemd-logind"
    )
    told = pyinfra("kubelet_config", "-y", *wish)
    assert told.code == 1 and f"{VENDOR}: InhibitDelayMaxSec=30 wins" in told.all and "REFUSED, nothing was written" in told.all, told.all

    # Nobody can see this in the plan: the kubelet cannot write its own drop-in.
    lab.run("w1", f"rm {VENDOR}; systemctl restart systemd-logind; mkdir -p {DROPINS} && mount -t tmpfs -o ro tmpfs {DROPINS}")
    told = pyinfra("kubelet_config", "-y", *wish)
    assert told.code == 1 and "HALTED: w1, kubelet: reverted: " in told.out, told.all
    assert "holds no lock that delays a shutdown, so it does not end pods at one (logind waits 5 s, 120 s needed)" in told.out, told.all
    assert operator.files(lab, "w1") == files and "shutdownGracePeriod" not in str(configz(lab, "w1").get("shutdownGracePeriod"))

    lab.run("w1", f"umount {DROPINS}")
    told = pyinfra("kubelet_config", "-y", *wish)
    assert told.code == 0 and "its lock delays shutdowns, logind waits 120 s" in told.out, told.all
    assert locks(lab) == [operator.processes(lab, "w1")["kubelet"][0]]

    lab.run("w1", f"printf '[Login]\nInhibitDelayMaxSec=30\n' >{VENDOR}; systemctl restart systemd-logind kubelet")
    wait_for(lambda: bool(configz(lab, "w1")), "the kubelet of w1")
    audit = pyinfra("audit", "-y", *data(format="json"), "--limit", "w1")
    assert f"{VENDOR} gives 30 s of the 120 s" in audit.out and '"no-effect"' in audit.out, audit.all
    back = pyinfra("rollback", "-y", brief=True)
    assert back.code == 0 and "it holds no lock that delays shutdowns" in back.out, back.all
    # The kubelet's own drop-in stays, as the plan has said.
    assert f"WARNING w1: shutdownGracePeriod: the kubelet itself writes {DROPINS}/99-kubelet.conf" in told.out, told.out
    assert {path: one for path, one in operator.files(lab, "w1").items() if not path.startswith(DROPINS)} == files and locks(lab) == []


CONFIG = "/var/lib/kubelet/config.yaml"


@contextlib.contextmanager
def edited(lab: Lab, line: str) -> Iterator[str]:
    """w1's configuration file with one more line, which its kubelet has not read; gives the number of that line."""
    lab.run("w1", f"cp -a {CONFIG} /root/config.yaml && printf '%s\\n' '{line}' >>{CONFIG}")
    try:
        yield lab.run("w1", f"wc -l <{CONFIG}").stdout.strip()
    finally:
        lab.run("w1", f"mv /root/config.yaml {CONFIG}; systemctl restart kubelet")
        wait_for(lambda: bool(configz(lab, "w1")), "the kubelet of w1 with its own file")


def test_one_signal_is_changed_and_what_a_restart_brings_besides_is_said_by_all_deploys(lab: Lab) -> None:
    with edited(lab, "podsPerCore: 71"):
        files, told = (
            operator.files(lab, "w1"),
            "a restart also applies: podsPerCore is 71 in its files, but the kubelet runs with (not set)",
        )
        gates = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{operator.GATE}=true", only="w1", components="kubelet"))
        fields = pyinfra("kubelet_config", "--dry", *data(kubelet_config="maxPods=99", only="w1"))
        for dry in (gates, fields):
            assert dry.code == 0 and told in dry.out, dry.all
            # The file is younger than the process: what it leaves out is held against the defaults, and none of them differs.
            assert len(re.findall(r"a restart also \w+: ", dry.out)) == 1, dry.all
        on, back = one_signal_and_no_other(lab, "w1")
        assert told in on.out and "a restart also " not in back.out, on.all + back.all
        assert configz(lab, "w1")["podsPerCore"] == 71 and operator.files(lab, "w1") == files


@pytest.mark.parametrize(
    ("deploy", "wish"),
    [
        ("eviction", {"eviction_hard": "memory.available=217Mi"}),
        ("feature_gates", {"feature_gates": f"{operator.GATE}=true", "components": "kubelet"}),
    ],
)
def test_files_that_the_kubelet_refuses_as_they_are_are_named(lab: Lab, deploy: str, wish: dict[str, str]) -> None:
    with edited(lab, "imageGCHighThresholdPercent: 250") as line:
        files, old = operator.files(lab, "w1"), operator.processes(lab, "w1")
        told = pyinfra(deploy, "-y", *data(**wish, only="w1"))
        assert told.code == 1 and "rejects its current files, without this change" in told.all, told.all
        assert f"{CONFIG}, line {line}" in told.all and "remove it from the data" not in told.all, told.all
        assert operator.files(lab, "w1") == files and operator.processes(lab, "w1") == old


REFUSED = [
    ("kubelet_config", {"kubelet_config": "maxPodz=5"}, ("maxPods? You wrote maxPodz. Refused by kubelet on w1",)),
    ("kubelet_config", {"kubelet_config": "maxPods='5'"}, ("maxPods",)),
    (
        "kubelet_config",
        {"kubelet_config": "maxPods=1", "drain": "never"},
        ("would not admit these pods again", "OutOfpods", "allow_evictions=true"),
    ),
    ("kubelet_config", {"kubelet_config": "systemReserved.memory=900Gi"}, ("memory", "900Gi")),
    (
        "kubelet_config",
        {"kubelet_config": "cpuManagerPolicy=static,systemReserved.cpu=500m", "drain": "never"},
        ("cpu_manager_state", "must be drained"),
    ),
    ("kubelet_config", {"kubelet_config": "evictionHard.memory.available=1Gi"}, ("evictionHard", "eviction")),
    ("kubelet_config", {"kubelet_config": "imageGCHighThresholdPercent=10"}, ("imageGCHighThresholdPercent",)),
    ("eviction", {"eviction_hard": "memory.availabel=1Gi"}, ("did you mean memory.available",)),
    ("eviction", {"eviction_hard": "memory.available=0"}, ("memory.available",)),
    ("eviction", {"eviction_soft": "memory.available=400Mi"}, ("eviction_soft_grace_period",)),
    ("eviction", {"eviction_hard": "nodefs.available=99%"}, ("would evict", "allow_evictions=true", "default/app-w1")),
]


@pytest.mark.parametrize(("deploy", "wish", "words"), REFUSED, ids=[next(iter(wish.values())) for _, wish, _ in REFUSED])
def test_what_is_refused(lab: Lab, deploy: str, wish: dict[str, str], words: tuple[str, ...]) -> None:
    files, old = operator.files(lab, "w1"), operator.processes(lab, "w1")
    told = pyinfra(deploy, "-y", *data(**wish, only="w1")).ended(1)
    for word in words:
        assert word in told.all, told.all
    assert "Traceback" not in told.all and "REFUSED, nothing was written" in told.all
    assert operator.files(lab, "w1") == files and operator.processes(lab, "w1") == old
