"""Control-plane flags on a real cluster: flags of an API server, a scheduler's profile and their files, proven, refused, reverted, kept by
kubeadm, and undone. (docs/runbooks/control-plane-flag.md has the controller-manager.)"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from roles.engine.editing import cluster_configuration
from tests.integration import flag_files, kubeadm_pods, operator
from tests.integration.flag_files import (
    API,
    AUDIT,
    AUDITED,
    CONFIG,
    MANAGER,
    POLICY,
    PROFILE,
    SCHEDULER,
    THEIRS,
    Before,
    argv,
    attributes,
    deploy,
)
from tests.integration.kubeadm_pods import stored
from tests.integration.operator import MANIFESTS, Outcome, data, pyinfra, wait_for
from tests.lab import Lab

pytestmark = pytest.mark.lab

# A fixture: pytest finds it by this name.
before = flag_files.before

WINDOW = "horizontal-pod-autoscaler-downscale-stabilization"
LOGS = "/var/log/kubernetes/audit"
LOG = f"{LOGS}/audit.log"
TRUST, CA = "kubelet-certificate-authority", "/etc/kubernetes/pki/ca.crt"


def stopped(told: Outcome, *words: str) -> None:
    assert told.code == 1 and "Plan of run" not in told.out, told.all
    for word in words:
        assert word in told.all, told.all


@pytest.fixture(autouse=True)
def settled(lab: Lab) -> None:
    wait_for(lambda: {API, MANAGER, SCHEDULER} <= set(operator.processes(lab, "cp1")), "the control plane", 600)


def test_what_is_refused_touches_nothing(lab: Lab, before: Before) -> None:
    processes = operator.processes(lab, "cp1")
    # The form of some is right; only the rules of the binary say that they are not.
    stopped(
        deploy(
            control_plane_flags={
                MANAGER: {WINDOW.replace("z", "s"): "2m"},
                API: {"goaway-chance": 7, "anonymous-auth": False, "audit-log-path": LOG},
                SCHEDULER: {"config": CONFIG},
            },
            control_plane_files={CONFIG: {"content": PROFILE.replace("Most", "Moist"), "mode": "0600"}},
        ),
        f"--{WINDOW} or --horizontal-pod-autoscaler-tolerance? You wrote --{WINDOW.replace('z', 's')}. Refused by {MANAGER} on cp1",
        'Unsupported value: "MoistAllocated"',
        "--goaway-chance can not be less than 0 or greater than 0.02",
        "--anonymous-auth=false: requests without credentials",
        "--data allow_flags=anonymous-auth",
        f"--audit-log-path={LOG}: {LOGS}/ is no mount of the pod: the log stays in the container, and is lost when it restarts",
        'use "-", or a directory that is mounted',
    )
    # What these must fit is elsewhere: the kubelets' certificates, the ranges of the nodes.
    stopped(
        deploy(control_plane_flags={API: {TRUST: CA}, MANAGER: {"cluster-cidr": "10.245.0.0/16"}}, allow_flags=f"{TRUST},cluster-cidr"),
        f"{API} --{TRUST} {CA} of cp1 and kubelet serving certificate of cp1",
        "it does not prove what ",
        "[api-trusts-kubelets]",
        "deploys/kubelet_certificates.py first",
        "is outside of 10.245.0.0/16: the controller-manager ends at each start",
        "--data allow_pairs=cluster-range-covers-the-nodes",
    )
    # What is right is planned, and each binary could be asked about its rules.
    right = {API: {"event-ttl": "2h"}, MANAGER: {WINDOW: "2m"}, SCHEDULER: {"v": 3}}
    planned = deploy(control_plane_flags=right, dry=True)
    assert planned.code == 0 and "3 changes on 1 node" in planned.plan and "about its rules" not in planned.out, planned.all
    assert Before.of(lab) == before
    assert {name: found[:2] for name, found in operator.processes(lab, "cp1").items()} == {
        name: found[:2] for name, found in processes.items()
    }


def test_flags_files_and_a_profile_are_set_proven_and_kept(lab: Lab, before: Before, tmp_path: Path) -> None:
    here = tmp_path / "scheduler-config.yaml"
    here.write_text(PROFILE)
    values: dict[str, object] = {
        "control_plane_flags": {API: AUDITED, SCHEDULER: {"config": CONFIG}},
        "control_plane_files": {AUDIT: {"content": POLICY}, CONFIG: {"file": str(here), "mode": "0440", "owner": "65534:7"}},
    }
    told = deploy(**values).ended(0)
    assert told.out.index(f"cp1 {API}: confirmed") < told.out.rindex(f"[2/2] cp1: {SCHEDULER}"), told.out
    row = re.search(rf"^cp1 +{API} +--event-ttl +absent +2h +confirmed .*$", told.out, re.MULTILINE)
    assert row and f"--event-ttl=2h, --audit-policy-file={AUDIT}, --audit-log-path=- in /proc/PID/cmdline" in row.group(), told.out
    assert f"{AUDIT} in its container; in its /flagz event-ttl is 2h0m0s" in row.group(), row.group()
    assert "its kubelet's probes pass; /readyz 200" in row.group(), row.group()
    assert f"{CONFIG} in its container" in told.out and "LeastAllocated -> MostAllocated" in told.out
    assert {f"--{name}={value}" for name, value in AUDITED.items()} <= set(argv(lab, API)) and f"--config={CONFIG}" in argv(lab, SCHEDULER)
    assert attributes(lab) == {AUDIT: THEIRS, CONFIG: "440 65534:7"}
    # The last write of the run is in the API server's own audit log, by that policy: and nothing else is.
    logged = lab.run(
        "cp1", f'grep -h \'"kind":"Event","apiVersion":"audit.k8s.io/v1"\' /var/log/pods/kube-system_{API}-cp1_*/{API}/*.log'
    ).stdout
    assert logged and all('"verb":"patch"' in line and '"name":"kubeadm-config"' in line for line in logged.splitlines()), logged

    extras = cluster_configuration.read(stored(lab).encode())
    assert {name: extras[API].flags[name] for name in AUDITED} == {name: (value,) for name, value in AUDITED.items()}
    assert extras[API].files == {AUDIT} and extras[SCHEDULER].files == {CONFIG}
    assert kubeadm_pods.rendered(lab, "cp1") == kubeadm_pods.written(lab, "cp1")

    again = deploy(**values)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
    checked = pyinfra("checks", "-y", *data(control_plane_flags=json.dumps({API: {"event-ttl": "3h"}})))
    assert re.search(rf"cp1 +control-plane-flags +FAIL +{API}: its arguments have --event-ttl=2h, wanted --event-ttl=3h", checked.out)


def placed(lab: Lab) -> list[str]:
    """The nodes of pods that are created one after the other."""
    resources = {"requests": {"cpu": "50m", "memory": "20Mi"}}
    container = {"name": "c", "image": "registry.local/app:1", "imagePullPolicy": "Never", "resources": resources}
    names = [f"packed-{number}" for number in range(4)]
    nodes: list[str] = []

    def node_of(name: str) -> str:
        found: str = lab.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
        return found

    try:
        for name in names:
            spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
            wait_for(partial(node_of, name), f"{name} to have a node")
            nodes.append(node_of(name))
    finally:
        lab.kubectl("delete", "pod", *names, "--now", "--ignore-not-found")
    return nodes


def test_pods_are_packed_by_the_profile(lab: Lab) -> None:
    """With MostAllocated pods follow each other to one node; by default they go to the emptier one."""
    nodes = placed(lab)
    assert len(nodes) == 4 and len(set(nodes)) == 1, nodes


@pytest.mark.slow
def test_an_api_server_that_works_and_refuses_its_probes_is_reverted(lab: Lab) -> None:
    """It answers its administrator, and not its kubelet, whose probes have no credentials: that would kill it after 4 minutes, again and
    again."""
    now = lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)
    told = deploy(control_plane_flags=f"{API}:anonymous-auth=false", allow_flags="anonymous-auth")
    assert told.code == 1 and "its kubelet's probes do not pass" in told.out, told.all
    assert f"HALTED: cp1, {API}: reverted: " in told.out, told.all
    wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
    assert (lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)) == now


@pytest.mark.slow
def test_an_api_server_that_trusts_no_kubelet_is_reverted(lab: Lab) -> None:
    """Also with all consents: daytwo itself goes that way. What says so names the flag and its CA."""
    now = lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)
    told = deploy(control_plane_flags=f"{API}:{TRUST}={CA}", allow_flags=TRUST, allow_pairs="api-trusts-kubelets")
    assert told.code == 1 and f"HALTED: cp1, {API}: reverted: " in told.out, told.all
    assert "kubelets no longer answer through the API server of cp1, as before: " in told.out, told.all
    assert f"does not trust the certificate of this kubelet by the CA of its --{TRUST}" in told.out and "try again" not in told.out
    wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
    assert (lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)) == now


@pytest.mark.slow
def test_a_flag_that_parses_and_kills_is_reverted(lab: Lab) -> None:
    """Nobody can bind this address: only a start shows that."""
    now = lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)
    told = deploy(control_plane_flags=f"{SCHEDULER}:bind-address=192.0.2.77", allow_flags="bind-address", confirm_timeout="100")
    assert told.code == 1 and f"HALTED: cp1, {SCHEDULER}: reverted: " in told.out and "192.0.2.77" in told.out, told.all
    assert (lab.run("cp1", f"cat {MANIFESTS}/*").stdout, stored(lab)) == now
    assert "--bind-address=127.0.0.1" in argv(lab, SCHEDULER)


@pytest.mark.slow
def test_an_audit_log_grows_on_the_node(lab: Lab) -> None:
    """In a directory that the manifest mounts. Without one, and with consent, the row says what has no sign."""
    path = f"{MANIFESTS}/{API}.yaml"
    manifest = lab.run("cp1", f"cat {path}").stdout
    policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
    wish: dict[str, object] = {
        "control_plane_flags": {API: {"audit-log-path": LOG, "audit-policy-file": AUDIT}},
        "control_plane_files": {AUDIT: {"content": policy}},
    }
    told = deploy(**wish, allow_flags="audit-log-path")
    assert told.code == 0 and "NOT PROVEN" not in told.out and f"no sign that {LOG} reaches the node" in told.out, told.all
    assert lab.run("cp1", f"ls {LOG}", check=False).returncode != 0
    audit = pyinfra("audit", "-y", *data(format="json"), "--limit", "cp1")
    assert f"{LOGS}/ is no mount of the pod" in audit.out, audit.all
    assert pyinfra("rollback", "-y", brief=True).code == 0 and lab.run("cp1", f"cat {path}").stdout == manifest

    mounted = manifest.replace("    volumeMounts:\n", f"    volumeMounts:\n    - mountPath: {LOGS}\n      name: logs\n", 1)
    mounted = mounted.replace(
        "  volumes:\n", f"  volumes:\n  - hostPath:\n      path: {LOGS}\n      type: DirectoryOrCreate\n    name: logs\n", 1
    )
    try:
        lab.run("cp1", f"cat >/root/{API}.yaml && mv /root/{API}.yaml {path}", input=mounted)
        wait_for(
            lambda: LOGS in str(operator.processes(lab, "cp1")) or lab.run("cp1", f"test -d {LOGS}", check=False).returncode == 0,
            "the mount",
        )
        wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
        told = deploy(**wish)
        assert told.code == 0 and f"{LOG} grows on the node (" in told.out, told.all
        assert lab.run("cp1", f"head -n 1 {LOG}").stdout.startswith('{"kind":"Event"')
        assert pyinfra("rollback", "-y", brief=True).code == 0 and lab.run("cp1", f"cat {path}").stdout == mounted
    finally:
        lab.run("cp1", f"cat >/root/{API}.yaml && mv /root/{API}.yaml {path}; rm -rf /var/log/kubernetes", input=manifest)
        wait_for(
            lambda: LOGS not in lab.run("cp1", f"cat /proc/$(pidof {API})/mountinfo", check=False).stdout,
            "the API server without the mount",
        )
        wait_for(lambda: operator.ready(lab, "cp1"), "the API server")


@pytest.mark.slow
def test_another_content_alone_reaches_the_container_and_is_undone(lab: Lab) -> None:
    now = lab.run("cp1", f"cat {CONFIG} {MANIFESTS}/{SCHEDULER}.yaml").stdout
    changed = PROFILE + "percentageOfNodesToScore: 50\n"
    told = deploy(control_plane_files={CONFIG: {"content": changed}}).ended(0)
    assert f"file {CONFIG}" in told.plan and "daytwo/files" in told.plan and "percentageOfNodesToScore: 0 -> 50" in told.out, told.out
    inside = f"cat /proc/$(pidof {SCHEDULER})/root{CONFIG}"
    assert lab.run("cp1", inside).stdout == changed
    undone = pyinfra("rollback", "-y")
    assert undone.code == 0 and f"{CONFIG} in its container; in its /configz" in undone.out, undone.all
    assert lab.run("cp1", inside).stdout == PROFILE and lab.run("cp1", f"cat {CONFIG} {MANIFESTS}/{SCHEDULER}.yaml").stdout == now


def test_all_is_undone_byte_for_byte(lab: Lab, before: Before) -> None:
    told = pyinfra("rollback", "-y")
    assert told.code == 0 and "no such file in its container" in told.out, told.all
    assert Before.of(lab) == before
    assert not any(f"--{name}" in word for word in argv(lab, API) for name in AUDITED)
    assert not any("--config" in word for word in argv(lab, SCHEDULER))
    assert kubeadm_pods.rendered(lab, "cp1") == kubeadm_pods.written(lab, "cp1")
    assert len(set(placed(lab))) == 2


def test_a_content_that_kills_the_api_server_is_reverted_with_its_file(lab: Lab, before: Before) -> None:
    """Only a start reads this file. The API is down, so the node alone can help; and what follows in the run is not begun. The last one of
    this module: scheduler and controller-manager wait for their next start after it."""
    told = deploy(
        control_plane_flags={API: AUDITED, MANAGER: {WINDOW: "2m"}},
        control_plane_files={AUDIT: {"content": POLICY.replace("Metadata", "Everything")}},
    )
    assert told.code == 1 and f"HALTED: cp1, {API}: reverted: " in told.out, told.all
    assert 'Unsupported value: \\"Everything\\"' in told.out.partition("HALTED: ")[2], told.all
    assert f"Not touched: cp1 {MANAGER}." in told.out and "Not started: kubeadm-config" in told.out, told.all
    wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
    assert Before.of(lab) == before
    assert not any(f"--{name}" in word for word in argv(lab, API) for name in AUDITED)
