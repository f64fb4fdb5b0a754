"""A kubelet that would not start again, and a node that cannot start a pod: refused before any write, found by checks and audit; a change
after which that is so is reverted.

The states are of one node: a file laid over a kernel tunable, a file moved away. No kubelet is restarted but by a deploy.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.checkpoints import configz
from tests.integration.operator import Outcome, data, pyinfra, wait_for
from tests.lab import Lab
from tests.unit.starting.samples import certificate

pytestmark = pytest.mark.lab
CONFIG = "/var/lib/kubelet/config.yaml"
MANIFEST = "/etc/kubernetes/manifests/kube-apiserver.yaml"
FIELD = {"kubelet_config": "containerLogMaxSize=20Mi"}
#: What is done to a node that runs and is Ready, how it is undone, and what is said of it.
STATES = {
    "tunable drifted": (
        "echo 0 >/root/zero; mount --bind /root/zero /proc/sys/vm/overcommit_memory",
        "umount /proc/sys/vm/overcommit_memory; rm /root/zero",
        "protectKernelDefaults, and vm.overcommit_memory is 0 (needs 1)",
    ),
    "file gone": (
        "mv /etc/kubernetes/pki/ca.crt /root/ca.away",
        "mv /root/ca.away /etc/kubernetes/pki/ca.crt",
        "authentication.x509.clientCAFile names /etc/kubernetes/pki/ca.crt, which does not exist",
    ),
    "certificate expired": (
        f"echo {base64.b64encode(certificate('system:node:w1', -2000, 5000)).decode()} | base64 -d >/root/expired.pem"
        " && mount --bind /root/expired.pem $(readlink -f /var/lib/kubelet/pki/kubelet-client-current.pem)",
        "umount $(readlink -f /var/lib/kubelet/pki/kubelet-client-current.pem); rm /root/expired.pem",
        "expired on 2020-12-09, and its bootstrap kubeconfig",
    ),
    "runtime away": (
        "systemctl stop containerd",
        "systemctl start containerd",
        "its kubelet would not start again: containerRuntimeEndpoint names",
    ),
    "disk full": (
        "mkdir -p /var/lib/daytwo && mount -t tmpfs -o size=128k full /var/lib/daytwo",
        "umount /var/lib/daytwo",
        "a change could not be recorded on the node",
    ),
    "binary replaced": (
        "cp /bin/true /root/other && chmod 0644 /root/other && mount --bind /root/other /usr/bin/kubelet",
        "umount /usr/bin/kubelet; rm /root/other",
        "kubelet",
    ),
}


@contextlib.contextmanager
def in_state(lab: Lab, node: str, do: str, undo: str) -> Iterator[None]:
    lab.run(node, do)
    try:
        yield
    finally:
        lab.run(node, undo)


@pytest.fixture(scope="module")
def protected(lab: Lab) -> Iterator[None]:
    """w1 with protectKernelDefaults."""
    lab.run("w1", f"cp -a {CONFIG} /root/config.before && echo 'protectKernelDefaults: true' >>{CONFIG} && systemctl restart kubelet")
    try:
        wait_for(lambda: configz(lab, "w1").get("protectKernelDefaults") is True, "the kubelet of w1 with it")
        yield
    finally:
        lab.run("w1", f"mv /root/config.before {CONFIG} && systemctl restart kubelet")
        # /configz leaves out what is false.
        wait_for(lambda: bool(now := configz(lab, "w1")) and not now.get("protectKernelDefaults"), "the kubelet of w1 without it")


# Without its runtime a kubelet gives no usage either, which a plan reads before anything else.
@pytest.mark.parametrize("state", [pytest.param(one, marks=pytest.mark.slow) if one == "runtime away" else one for one in STATES])
def test_a_node_that_would_not_start_again_is_not_restarted(lab: Lab, protected: None, state: str) -> None:
    do, undo, text = STATES[state]
    files, before = operator.files(lab, "w1"), operator.processes(lab, "w1")
    with in_state(lab, "w1", do, undo):
        refused = pyinfra("kubelet_config", "-y", *data(**FIELD, only="w1"), brief=True)
    assert refused.code == 1 and "REFUSED, nothing was written on any node" in refused.all and text in refused.all, refused.all
    assert operator.files(lab, "w1") == files and operator.processes(lab, "w1") == before


def test_checks_and_the_audit_report_it(lab: Lab, protected: None) -> None:
    do, undo, text = STATES["tunable drifted"]
    with in_state(lab, "w1", f"{do}; mv /etc/resolv.conf /root/resolv", f"{undo}; mv /root/resolv /etc/resolv.conf"):
        checked = pyinfra("checks", "-y", "--limit", "w1", brief=True)
        audited = pyinfra("audit", "--limit", "w1", *data(format="json"), brief=True)
    assert checked.code == 2 and text in checked.out, checked.all
    found: list[dict[str, Any]] = [one for one in json.loads(audited.out)["findings"] if one["kind"] == "start"]
    assert {(one["severity"], one["name"] or one["file"]) for one in found} == {
        ("critical", "vm.overcommit_memory"),
        ("critical", "/etc/resolv.conf"),
    }, found


def test_a_file_that_is_not_there_is_refused_and_a_new_pod_proves_one_that_is(lab: Lab) -> None:
    path = "/root/resolvers/resolv.conf"
    wish = data(kubelet_config=f"resolvConf={path}", only="cp1")
    files = operator.files(lab, "cp1")
    refused = pyinfra("kubelet_config", "-y", *wish, brief=True)
    assert refused.code == 1 and f"after this change no new pod would start on the node: resolvConf names {path}" in refused.all, (
        refused.all
    )
    assert "(/etc/resolv.conf)" in refused.all and operator.files(lab, "cp1") == files
    lab.run("cp1", f"mkdir /root/resolvers && cp /etc/resolv.conf {path}")
    try:
        on = pyinfra("kubelet_config", "-y", *wish, brief=True)
        assert on.code == 0 and "would start again; a new pod starts" in on.out, on.all
        assert "daytwo-probe" not in lab.kubectl("get", "pods", "-n", "kube-system", "-o", "name")
        # The file goes: no manifest is changed while the kubelet there cannot start pods.
        # Nor while the image is gone of which its container is created again.
        image = lab.run("cp1", f"sed -n 's/.*image: //p' {MANIFEST}").stdout.strip()
        gone = f"ctr -n k8s.io images tag {image} lab/kept:1 && ctr -n k8s.io images rm {image}"
        back = f"ctr -n k8s.io images tag lab/kept:1 {image} && ctr -n k8s.io images rm lab/kept:1"
        with in_state(lab, "cp1", f"mv {path} /root/away; {gone}", f"mv /root/away {path}; {back}"):
            flag = pyinfra("control_plane_flags", "-y", *data(control_plane_flags="kube-apiserver:v=3"), brief=True)
            assert flag.code == 1 and f"no new pod would start on the node: resolvConf names {path}" in flag.all, flag.all
            assert f"its kube-apiserver would not start again: its image {image} is not on the node" in flag.all, flag.all
        # And the way back, if its file is the one that is gone.
        with in_state(lab, "cp1", "mv /etc/resolv.conf /root/away", "mv /root/away /etc/resolv.conf"):
            undone = pyinfra("rollback", "-y", brief=True)
            assert undone.code == 1 and "resolvConf names /etc/resolv.conf, which does not exist" in undone.all, undone.all
        back = pyinfra("rollback", "-y", brief=True)
        assert back.code == 0 and operator.files(lab, "cp1") == files, back.all
    finally:
        lab.run("cp1", "rm -rf /root/resolvers")


@pytest.mark.slow
def test_a_change_after_which_it_would_not_start_is_reverted(lab: Lab, protected: None) -> None:
    """The tunable changes while the change is applied: the kubelet runs already."""
    do, undo, text = STATES["tunable drifted"]
    started = operator.Started("kubelet_config", "-y", *data(**FIELD, only="w1"))
    try:
        started.wait_for("healthy: ")
        lab.run("w1", do)
        started.wait_for("not proven")
    finally:
        lab.run("w1", undo)
    ended = started.end()
    assert ended.code == 1 and text in ended.out and "reverted" in ended.out, ended.out
    wait_for(lambda: "kubelet" in operator.processes(lab, "w1"), "the kubelet of w1")


#: Takes a port as soon as it is free, long before a new kubelet asks for it: it tries each millisecond. Answers nothing.
THIEF = """use IO::Socket::INET;
until ($taken = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 10250, Listen => 9, ReuseAddr => 1)) { select undef, undef, undef, 0.001 }
while (1) { close $one if $one = $taken->accept }"""
#: A state that comes when the change is checked already, how it is undone if no command did that, and what is said of it.
IN_MID_CHANGE = {
    "tunable drifted": STATES["tunable drifted"],
    "runtime away": ("systemctl stop containerd", "systemctl start containerd", "containerRuntimeEndpoint names"),
    "port taken": (
        "systemd-run --unit=thief --collect perl -e " + shlex.quote(THIEF),
        "systemctl stop thief",
        "listens on port 10250 already",
    ),
}


def struck(lab: Lab, node: str, deploy: str, do: str, **values: str) -> Outcome:
    """A deploy whose change is held once its files are checked, until the state is there."""
    run = operator.Started(deploy, "-y", *data(**values), hold="check")
    run.wait_for("held\n")
    lab.run(node, f"{do}; touch /var/lib/daytwo/go")
    try:
        return run.end()
    finally:
        lab.run(node, "rm -rf /var/lib/daytwo/held /var/lib/daytwo/go")


def repair_by_hand(lab: Lab, node: str, ended: Outcome) -> str:
    """Types what is printed, letter for letter; returns what blocked the revert."""
    found = re.search(rf"^REPAIR BY HAND on {node}: (.*)\n((?:    .*\n)+)", ended.out, re.MULTILINE)
    assert ended.code == 1 and found, ended.out
    for command in found[2].splitlines():
        lab.run(node, command)
    return found[1]


@pytest.mark.slow
@pytest.mark.parametrize("state", IN_MID_CHANGE)
def test_a_state_that_comes_in_mid_change_is_repaired_as_printed(lab: Lab, protected: None, state: str) -> None:
    """Neither the new process starts then nor the old one: the node says so, and what is printed repairs it."""
    do, undo, text = IN_MID_CHANGE[state]
    files = operator.files(lab, "w1")
    try:
        ended = struck(lab, "w1", "kubelet_config", do, **FIELD, only="w1")
        assert "revert-failed" in ended.out and text in repair_by_hand(lab, "w1", ended), ended.out
    finally:
        lab.run("w1", undo, check=False)
    assert operator.files(lab, "w1") == files and "kubelet" in operator.processes(lab, "w1")
    assert "revert-failed" not in pyinfra("status", "-y", "--limit", "w1", brief=True).out


@pytest.mark.slow
def test_a_control_plane_whose_pods_start_no_more_is_repaired_as_printed(lab: Lab) -> None:
    """The file with the name servers goes once the change of a manifest is checked: neither the new pod starts then nor the old one."""
    names, files = "/etc/kubernetes/names.cfg", operator.files(lab, "cp1")
    lab.run("cp1", f"cp -a {CONFIG} /root/config.before && cp /etc/resolv.conf {names}")
    try:
        lab.run("cp1", f"sed -i '/^resolvConf:/d' {CONFIG} && echo 'resolvConf: {names}' >>{CONFIG} && systemctl restart kubelet")
        wait_for(lambda: configz(lab, "cp1").get("resolvConf") == names, "the kubelet of cp1 with it")
        ended = struck(lab, "cp1", "control_plane_flags", f"rm {names}", control_plane_flags="kube-apiserver:v=3")
        assert f"resolvConf names {names}, which does not exist" in repair_by_hand(lab, "cp1", ended), ended.out
        wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
        checked = pyinfra("checks", "-y", "--limit", "cp1", brief=True)
        assert "revert-failed" not in checked.out and names not in checked.out, checked.all
    finally:
        lab.run("cp1", f"mv /root/config.before {CONFIG}; rm -f {names}; systemctl restart kubelet")
        wait_for(lambda: operator.ready(lab, "cp1"), "the API server")
    assert operator.files(lab, "cp1") == files


def flat(told: Outcome) -> str:
    return " ".join(told.all.split())


@pytest.mark.slow
def test_a_key_that_is_not_that_of_its_certificate(lab: Lab) -> None:
    """After half a renewal nothing is restarted. Without openssl on the node there is no sign of that: the plan, the row of the change, checks and
    the audit say so; certificates are judged all the same."""
    pki, files = "/etc/kubernetes/pki", operator.files(lab, "cp1")
    with in_state(
        lab, "cp1", f"openssl genrsa -out /root/new.key 2048 && mount --bind /root/new.key {pki}/apiserver.key",
        f"umount {pki}/apiserver.key; rm /root/new.key",
    ):  # fmt: skip
        refused = pyinfra("control_plane_flags", "-y", *data(control_plane_flags="kube-apiserver:v=3"), brief=True)
        assert refused.code == 1 and operator.files(lab, "cp1") == files, refused.all
        why = f"its kube-apiserver would not start again: the key in {pki}/apiserver.key (--tls-private-key-file) is not that of the certificate"
        assert why in flat(refused), refused.all
    key = f"{pki}/again.key"
    away = "cp /bin/true /root/no-program && chmod 0644 /root/no-program && mount --bind /root/no-program /usr/bin/openssl"
    wish = data(control_plane_flags=f"kube-apiserver:tls-private-key-file={key}", allow_flags="tls-private-key-file")
    told = f"no sign that {key} (--tls-private-key-file) is the key of {pki}/apiserver.crt (--tls-cert-file): the node has no openssl"
    try:
        lab.run("cp1", f"cp -a {pki}/apiserver.key {key}")
        with in_state(lab, "cp1", away, "umount /usr/bin/openssl; rm /root/no-program"):
            not_known = json.loads(pyinfra("audit", *data(format="json"), brief=True).out)["not_known"]
            for words in (f"no sign that {pki}/ca.key (--cluster-signing-key-file) is the key", "[tokens-are-accepted]"):
                assert any(words in one and "the node has no openssl" in one for one in not_known), not_known
            checked = pyinfra("checks", "-y", "--limit", "cp1", brief=True)
            assert checked.code == 0 and f"no sign that {pki}/apiserver.key" in flat(checked), checked.all
            trust = data(control_plane_flags=f"kube-apiserver:etcd-cafile={pki}/ca.crt", allow_flags="etcd-cafile")
            other = pyinfra("control_plane_flags", "--dry", *trust, brief=True)
            assert other.code == 1 and f"no CA in {pki}/ca.crt has signed the certificate in" in flat(other), other.all
            done = pyinfra("control_plane_flags", "-y", *wish, brief=True)
            assert done.code == 0 and flat(done).count(told) == 2 and "install openssl there" in flat(done), done.all
        back = pyinfra("rollback", "-y", brief=True)
        assert back.code == 0 and "no sign that /" not in flat(back) and operator.files(lab, "cp1") == files, back.all
    finally:
        lab.run("cp1", f"rm -f {key}")
