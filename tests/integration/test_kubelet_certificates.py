"""Serving certificates on the real lab: signed for the node that is seen over SSH, and for nobody who only has its credential."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import operator
from tests.integration.operator import Outcome, Started, data, end_started, pyinfra, run_of, wait_for
from tests.lab import Lab
from tests.unit.certificates.requests import pem, request

pytestmark = pytest.mark.lab

NODES = ("cp1", "w1", "w2")
KUBECONFIGS = {"w1": "/etc/kubernetes/kubelet.conf", "w2": "/etc/kubernetes-node/kubeconfig"}
PKI = "/var/lib/kubelet/pki"
CLUSTER_PKI = "/etc/kubernetes/pki"
# Certificates that are replaced by short ones: of which CA, and what the audit calls them.
SHORT = {
    "front-proxy-client": ("front-proxy-ca", "front proxy client"),
    "apiserver": ("ca", "serving"),
    "apiserver-etcd-client": ("etcd/ca", "client for etcd"),
    "etcd/server": ("etcd/ca", "server"),
}
SIGNED = "signed by the cluster's CA, until [0-9-]+"
# Where a redirected kubelet of w2 would be served from.
ELSEWHERE = 10255


@pytest.fixture(scope="module", autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """The certificates themselves stay on the nodes, without effect; they would be served at once the next time."""
    yield
    end_started(lab)
    lab.kubectl("delete", "csr", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving")
    for node in NODES:
        lab.run(node, f"rm -f {PKI}/kubelet-server-* /root/stolen.conf /tmp/seen")
    operator.forget(lab)


def ask_as(lab: Lab, node: str, name: str, names: tuple[str, ...]) -> None:
    """A request with the credential of a node, as anybody who has stolen it can make one."""
    item = request(pem(names, common=(f"system:node:{node}",)), name=name)
    made = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {key: item["spec"][key] for key in ("signerName", "usages", "request")},
    }
    where, config = node, KUBECONFIGS[node]
    if node == "w2":  # it has no kubectl, and all of its credential in one file
        where, config = "cp1", "/root/stolen.conf"
        lab.run(where, f"umask 077; cat >{config}", input=lab.run(node, f"cat {KUBECONFIGS[node]}").stdout)
    lab.run(where, f"kubectl --kubeconfig={config} create -f -", input=json.dumps(made))


def requests(lab: Lab) -> dict[str, str]:
    """By name, the condition of each request for a serving certificate; "" if it is pending."""
    items = json.loads(lab.kubectl("get", "csr", "-o", "json", "--field-selector=spec.signerName=kubernetes.io/kubelet-serving"))["items"]
    return {item["metadata"]["name"]: "".join(one["type"] for one in item["status"].get("conditions", ())) for item in items}


def serves(lab: Lab, node: str) -> str:
    """Subject, issuer and names of what a kubelet presents; and whether OpenSSL verifies it for the address, by the cluster's CA alone."""
    address = lab.address(node)
    asked = (
        f"echo | openssl s_client -connect {address}:10250 -CAfile /etc/kubernetes/pki/ca.crt -verify_ip {address} 2>/dev/null >/tmp/seen;"
        " openssl x509 -noout -subject -issuer -ext subjectAltName </tmp/seen; grep -o 'Verify return code: [0-9]*' /tmp/seen | head -n 1"
    )
    return lab.run("cp1", asked, check=False).stdout


def key(lab: Lab, node: str) -> str:
    """The public key that a kubelet presents."""
    asked = f"echo | openssl s_client -connect {lab.address(node)}:10250 2>/dev/null | openssl x509 -noout -pubkey"
    return lab.run("cp1", asked).stdout


def is_verified(lab: Lab, node: str) -> bool:
    found = serves(lab, node)
    names = set(re.findall(r"(?:DNS|IP Address):(\S+?)(?:,|\s)", found))
    return found.rstrip().endswith("Verify return code: 0") and names == {node, lab.address(node)} and f"system:node:{node}" in found


def serves_its_own(lab: Lab, node: str) -> bool:
    """The self-signed one that it has had from the beginning: issued by NAME-ca@TIME."""
    return f"{node}-ca@" in serves(lab, node)


def certify(*arguments: str, **more: str) -> Outcome:
    return pyinfra("kubelet_certificates", *data(**more), *arguments, "-y")


@pytest.fixture(scope="module")
def first(lab: Lab) -> Outcome:
    """The run that gives w1 its certificate, while a stolen credential asks for a name of the API server."""
    ask_as(lab, "w1", "stolen-pending", ("w1", lab.address("w1"), lab.address("cp1")))
    return certify(only="w1")


def test_a_node_gets_its_certificate_and_a_foreign_name_none(lab: Lab, first: Outcome) -> None:
    assert first.code == 0, first.all
    assert re.search(rf"NOT APPROVED: stolen-pending: it asks for {lab.address('cp1')}, which is not w1's", first.out), first.out
    now = requests(lab)
    assert now["stolen-pending"] == "" and sorted(now.values()) == ["", "Approved"], now
    assert is_verified(lab, "w1") and serves_its_own(lab, "w2"), serves(lab, "w1")
    row = rf"w1\s+w1, \S+\s+signed by itself, until \S+\s+{SIGNED}\s+confirmed\s+\d+\s+.*TLS handshake with \S+:10250 verified"
    assert re.search(row, first.out), first.out
    # Through the kubelet's new certificate, the API server still gets what only it gets.
    assert lab.kubectl("get", "--raw", "/api/v1/nodes/w1/proxy/configz")


def test_an_address_of_the_api_is_no_workers(lab: Lab) -> None:
    """Also if the worker has it, over SSH and in its Node object, as a load balancer's that root there has put on an interface."""
    where = ("configmap", "kubeadm-config", "-n", "kube-system")
    before = json.loads(lab.kubectl("get", *where, "-o", "json"))["data"]["ClusterConfiguration"]
    now, times = re.subn(r"(?m)^controlPlaneEndpoint: .*$", f"controlPlaneEndpoint: {lab.address('w2')}:6443", before)
    assert times == 1, before

    def put(text: str) -> None:
        lab.kubectl("patch", *where, "--type=merge", "-p", json.dumps({"data": {"ClusterConfiguration": text}}))

    put(now)
    try:
        refused = pyinfra("kubelet_certificates", *data(only="w2"), "--dry")
    finally:
        put(before)
    words = f"its Node object lists {lab.address('w2')} (InternalIP), which is the endpoint of the API"
    assert refused.code == 1 and words in " ".join(refused.all.split()), refused.all


def shorten(lab: Lab) -> None:
    """Of each kind the same certificate of the same key, for five days."""
    for name, (authority, _) in SHORT.items():
        make = (
            f"cd {CLUSTER_PKI} && mkdir -p /root/kept/etcd && cp -p {name}.crt /root/kept/{name}.crt"
            f" && openssl x509 -x509toreq -copy_extensions copyall -in {name}.crt -signkey {name}.key -out /root/short.csr"
            f" && openssl x509 -req -days 5 -copy_extensions copyall -CA {authority}.crt -CAkey {authority}.key -set_serial 7"
            f" -in /root/short.csr -out /root/short.crt && cat /root/short.crt >{name}.crt"
        )
        lab.run("cp1", f"{make} 2>/dev/null")


def test_audit_tells_of_what_waits_and_of_what_ends(lab: Lab, first: Outcome) -> None:
    try:
        shorten(lab)
        found = pyinfra("audit", *data(format="json"))
    finally:
        lab.run("cp1", f"cp -pr /root/kept/. {CLUSTER_PKI}/ && rm -rf /root/kept /root/short.*")
    told = json.loads(found.out)
    findings = {one["name"]: one for one in told["findings"] if one["kind"] == "certificate"}
    assert set(findings) == {"stolen-pending", *(use for _, use in SHORT.values())} and found.code == 2, findings
    assert "by system:node:w1" in findings["stolen-pending"]["value"]
    for name, (_, use) in SHORT.items():
        assert findings[use]["severity"] == "critical" and findings[use]["file"] == f"{CLUSTER_PKI}/{name}.crt", findings
    assert "kubeadm certs renew front-proxy-client" in findings["front proxy client"]["way_out"]
    held = {node["name"]: [(one["component"], one["use"]) for one in node["certificates"]] for node in told["nodes"]}
    assert {
        ("kube-apiserver", "serving"), ("kube-apiserver", "client for etcd"), ("kube-apiserver", "client for kubelets"),
        ("kube-apiserver", "front proxy client"), ("etcd", "server"), ("etcd", "peer"), ("kubelet", "client"), ("kubelet", "serving"),
        ("kube-controller-manager", "client"), ("kube-scheduler", "client"),
    } <= set(held["cp1"])  # fmt: skip
    for node, file, renews in (("w1", "kubelet-server-current.pem", True), ("w2", "kubelet.crt", False)):
        (serving,) = [one for one in certificates_of(told, node) if (one["component"], one["use"]) == ("kubelet", "serving")]
        assert (serving["file"], serving["renews"]) == (f"{PKI}/{file}", renews) and node in serving["subject"], serving


def certificates_of(told: dict[str, Any], node: str) -> list[dict[str, Any]]:
    """As the audit lists them."""
    return next(list(one["certificates"]) for one in told["nodes"] if one["name"] == node)


@pytest.mark.slow
def test_a_renewal_is_approved_once(lab: Lab, first: Outcome) -> None:
    """A kubelet without its certificate asks for a new one, as it does at the end of the old one's time."""
    before = set(requests(lab))
    lab.run("w1", f"rm -f {PKI}/kubelet-server-* && systemctl restart kubelet")
    wait_for(lambda: set(requests(lab)) - before, "the request of w1")
    assert not is_verified(lab, "w1")
    found = certify(only="w1")
    assert found.code == 0 and "restarting the kubelet" not in found.out, found.all
    assert re.search(rf"w1\s+w1, \S+\s+no certificate .*{SIGNED}\s+confirmed", found.out), found.out
    assert {requests(lab)[name] for name in set(requests(lab)) - before} == {"Approved"} and is_verified(lab, "w1")
    again = certify(only="w1")
    assert again.code == 0 and re.search(r"w1 .* no change", again.out), again.all


@pytest.fixture
def six_minutes(lab: Lab) -> Iterator[None]:
    """For so long, what is signed is valid: 11 minutes, of which five had passed before (pkg/controller/certificates/authority). A kubelet
    asks again when 70 to 90 % are over, 2.7 to 4.9 minutes after it got it."""
    flag = "cluster-signing-duration"
    done = pyinfra("control_plane_flags", *data(control_plane_flags=f"kube-controller-manager:{flag}=6m", allow_flags=flag), "-y").ended(0)
    yield
    pyinfra("rollback", *data(run=run_of(done)), "-y").ended(0)


@pytest.mark.slow
def test_a_renewal_that_a_kubelet_asks_for_by_itself(lab: Lab, six_minutes: None) -> None:
    """Only the end of its certificate makes it ask, and it still serves that one."""
    made = certify(only="w2").ended(0)
    try:
        known, old, process = set(requests(lab)), key(lab, "w2"), operator.processes(lab, "w2")["kubelet"]
        wait_for(lambda: set(requests(lab)) - known, "the request of w2", 400)
        (name,) = set(requests(lab)) - known
        told = json.loads(pyinfra("audit", *data(format="json")).out)
        (waiting,) = [one for one in told["findings"] if one["name"] == name]
        assert "kubernetes.io/kubelet-serving, by system:node:w2" in waiting["value"] and "nobody has approved" in waiting["rule"]
        assert requests(lab)[name] == "" and is_verified(lab, "w2") and key(lab, "w2") == old
        found = certify(only="w2")
        assert found.code == 0 and "restarting the kubelet" not in found.out, found.all
        assert re.search(rf"w2\s+w2, \S+\s+{SIGNED}\s+{SIGNED}\s+confirmed .*{name} approved; TLS handshake", found.out), found.out
        assert requests(lab)[name] == "Approved" and is_verified(lab, "w2") and key(lab, "w2") != old
        assert operator.processes(lab, "w2")["kubelet"] == process
    finally:
        undone = pyinfra("rollback", *data(run=run_of(made)), "-y")
        lab.run("w2", f"rm -f {PKI}/kubelet-server-*")
    assert undone.code == 0 and serves_its_own(lab, "w2"), undone.all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "names", "why"),
    [
        ("stolen-name", ("w2", "kubernetes"), "NOT APPROVED: stolen-name: it asks for kubernetes, which is not w2's"),
        ("stolen-twin", ("w2",), "2 requests in the name of w2 since its kubelet was restarted"),
    ],
)
def test_a_second_request_in_the_name_of_a_restarted_node_makes_it_revert(lab: Lab, name: str, names: tuple[str, ...], why: str) -> None:
    before = operator.files(lab, "w2")
    run = Started("kubelet_certificates", *data(only="w2"), "-y")
    run.wait_for("waiting until it is healthy")
    ask_as(lab, "w2", name, (*names, lab.address("w2")))
    found = run.end()
    assert found.code == 1 and why in found.out and "reverted" in found.out, found.all
    assert requests(lab)[name] == "" and operator.files(lab, "w2") == before
    wait_for(lambda: serves_its_own(lab, "w2"), "its old certificate")


@pytest.mark.slow
def test_a_pod_that_answers_in_the_place_of_the_kubelet_makes_it_revert(lab: Lab) -> None:
    """A pod with hostNetwork and NET_ADMIN can take port 10250 over; it does not have the key of the approved request."""
    own = "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj '/O=system:nodes/CN=system:node:w2' -keyout /root/k -out /root/c"
    server = f"openssl s_server -accept {ELSEWHERE} -key /root/k -cert /root/c -quiet"
    lab.run("w2", f"{own} 2>/dev/null && systemd-run --unit=impostor {server}")
    rule = f"PREROUTING -p tcp --dport 10250 -j REDIRECT --to-ports {ELSEWHERE}"
    try:
        run = Started("kubelet_certificates", *data(only="w2"), "-y")
        run.wait_for("waiting until it is healthy")
        lab.run("w2", f"iptables -w -t nat -A {rule}")
        found = run.end()
    finally:
        lab.run("w2", f"iptables -w -t nat -D {rule}; systemctl stop impostor; rm -f /root/k /root/c", check=False)
    assert found.code == 1 and "reverted" in found.out and "serves one that is not valid" in found.out, found.all
    wait_for(lambda: serves_its_own(lab, "w2"), "its old certificate")
    lab.run("w2", f"rm -f {PKI}/kubelet-server-*")


@pytest.mark.slow
def test_a_full_disk_is_refused_and_one_that_fills_makes_it_revert(lab: Lab) -> None:
    """The kubelet asks, and cannot keep what it gets."""
    before = operator.files(lab, "w2")
    lab.run("w2", f"mkdir /run/small && mount -t tmpfs -o size=16k none /run/small && cp -a {PKI}/. /run/small/")
    lab.run("w2", "! cat /dev/zero >/run/small/full 2>/dev/null")
    over = f"mount --bind /run/small {PKI}"
    try:
        lab.run("w2", over)
        refused = certify(only="w2")
        lab.run("w2", f"umount {PKI}")
        assert refused.code == 1 and "0 MiB left (needs" in refused.all and PKI in refused.all and "Plan of run" not in refused.out, (
            refused.all
        )
        run = Started("kubelet_certificates", *data(only="w2"), "-y")
        run.wait_for("waiting until it is healthy")
        lab.run("w2", over)
        found = run.end()
    finally:
        lab.run("w2", f"umount {PKI}; umount /run/small; rmdir /run/small; systemctl restart kubelet")
    assert found.code == 1 and "reverted" in found.out and "not proven within" in found.out, found.all
    assert operator.files(lab, "w2") == before
    wait_for(lambda: serves_its_own(lab, "w2"), "its old certificate")


@pytest.mark.slow
def test_an_operator_who_is_killed_before_the_approval(lab: Lab) -> None:
    """The node reverts what is not confirmed; the same command, run again, ends it."""
    before, known = operator.files(lab, "w2"), set(requests(lab))
    run = Started("kubelet_certificates", *data(only="w2", confirm_timeout="45"), "-y")
    run.wait_for("waiting until it is healthy")
    run.send(signal.SIGKILL)
    run.end()
    dead = re.search(r"Plan of run (\S+):", run.out)
    assert dead
    wait_for(lambda: "state=reverted" in lab.run("w2", f"cat /var/lib/daytwo/changes/{dead[1]}-w2-kubelet/state", check=False).stdout, "w2")
    left = set(requests(lab)) - known
    assert operator.files(lab, "w2") == before and {requests(lab)[name] for name in left} == {""}
    wait_for(lambda: serves_its_own(lab, "w2"), "its old certificate")
    found = certify(only="w2", take_over=dead[1])
    assert found.code == 0 and is_verified(lab, "w2"), found.all
    # Its kubelet has given that request up, whatever it is for.
    again = certify(only="w2")
    assert again.code == 0 and "older than the certificate that it serves" in again.out, again.all
    assert {requests(lab)[name] for name in left} == {""}
    undone = pyinfra("rollback", *data(run=run_of(found)), "-y")
    assert undone.code == 0 and serves_its_own(lab, "w2"), undone.all


@pytest.mark.slow
def test_the_other_nodes_the_configmap_and_back(lab: Lab, first: Outcome) -> None:
    found = certify()
    assert found.code == 0 and "kubelet-config: confirmed" in found.out, found.all
    assert re.search(r"kubelet-config\s+serverTLSBootstrap\s+\S+\s+true\s+confirmed", found.out), found.out
    assert all(is_verified(lab, node) for node in NODES)
    again = certify()
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all
    trust = "kubelet-certificate-authority"
    flags = data(control_plane_flags=f"kube-apiserver:{trust}=/etc/kubernetes/pki/ca.crt", allow_flags=trust)
    trusted = pyinfra("control_plane_flags", *flags, "-y")
    assert trusted.code == 0 and "3 of 3 kubelets answer through the API server of cp1" in trusted.out, trusted.all
    pyinfra("rollback", *data(run=run_of(trusted)), "-y").ended(0)
    pyinfra("rollback", *data(run=run_of(found)), "-y").ended(0)
    assert [serves_its_own(lab, node) for node in NODES] == [True, False, True]


def test_the_undo(lab: Lab, first: Outcome) -> None:
    pyinfra("rollback", *data(run=run_of(first)), "-y").ended(0)
    assert "serverTLSBootstrap: true" not in lab.run("w1", "cat /var/lib/kubelet/config.yaml").stdout
    assert serves_its_own(lab, "w1"), serves(lab, "w1")
    # What it got stays on the node, and is not what the audit looks at.
    assert lab.run("w1", f"ls {PKI}").stdout.count("kubelet-server-current.pem") == 1
    told = json.loads(pyinfra("audit", *data(format="json")).out)
    assert [one["file"] for one in certificates_of(told, "w1") if one["use"] == "serving"] == [f"{PKI}/kubelet.crt"]
