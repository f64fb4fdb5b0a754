"""Serving certificates on the real lab: signed for the node that is seen over SSH, and for nobody who only has its credential."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.operator import Started, data, pyinfra, wait_for
from tests.lab import Lab
from tests.unit.certificates.requests import pem, request

# Slow: about two minutes of the lab.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

KUBECONFIGS = {"w1": "/etc/kubernetes/kubelet.conf", "w2": "/etc/kubernetes-node/kubeconfig"}


@pytest.fixture(scope="module", autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    yield
    Started.end_all()
    lab.kubectl("delete", "csr", "--all")


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
    """By name, the condition of each request; "" if it is pending."""
    items = json.loads(lab.kubectl("get", "csr", "-o", "json"))["items"]
    return {item["metadata"]["name"]: "".join(one["type"] for one in item["status"].get("conditions", ())) for item in items}


def serves(lab: Lab, node: str) -> str:
    """The issuer and names of what a kubelet presents."""
    asked = f"echo | openssl s_client -connect {lab.address(node)}:10250 2>/dev/null | openssl x509 -noout -issuer -ext subjectAltName"
    return lab.run("cp1", asked, check=False).stdout


def test_a_node_gets_its_certificate_and_a_foreign_name_none(lab: Lab) -> None:
    ask_as(lab, "w1", "stolen-pending", ("w1", lab.address("w1"), lab.address("cp1")))
    found = pyinfra("kubelet_certificates", *data(only="w1", persist="false"), "-y")
    assert found.code == 0, found.all
    assert re.search(rf"NOT APPROVED: stolen-pending: it asks for {lab.address('cp1')}, which is not w1's", found.out), found.out
    now = requests(lab)
    assert now["stolen-pending"] == "" and list(now.values()).count("Approved") == 1
    shown = serves(lab, "w1")
    assert "CN = kubernetes" in shown or "CN=kubernetes" in shown, shown
    assert lab.address("w1") in shown and lab.address("cp1") not in shown
    assert re.search(r"w1\s+signed by the cluster's CA.*TLS handshake with \S+:10250 verified by the cluster's CA", found.out), found.out


def test_a_second_request_in_the_name_of_a_restarted_node_makes_it_revert(lab: Lab) -> None:
    before = operator.files(lab, "w2")
    run = Started("kubelet_certificates", *data(only="w2", persist="false"), "-y")
    run.wait_for("step: wait")
    ask_as(lab, "w2", "stolen-now", ("w2", lab.address("w2"), "kubernetes"))
    found = run.end()
    assert found.code == 1, found.all
    assert "NOT APPROVED: stolen-now: it asks for kubernetes, which is not w2's" in found.out, found.out
    assert "reverted" in found.out
    assert requests(lab)["stolen-now"] == ""
    assert operator.files(lab, "w2") == before
    wait_for(
        lambda: "Issuer" in serves(lab, "w2").title() and "kubernetes" not in serves(lab, "w2").partition("\n")[0], "its own certificate"
    )


def test_a_renewal_is_approved_and_audit_tells_of_it(lab: Lab) -> None:
    """A kubelet without its certificate asks for a new one, as it does at the end of the old one's time."""
    lab.kubectl("delete", "csr", "--all")
    lab.run("w1", "rm -f /var/lib/kubelet/pki/kubelet-server-*.pem && systemctl restart kubelet")
    wait_for(lambda: list(requests(lab).values()) == [""], "the request of w1")
    audit = pyinfra("audit", *data(format="json"))
    told = [one for one in json.loads(audit.out)["findings"] if one["kind"] == "certificate"]
    assert [one["name"] for one in told] == list(requests(lab)) and "system:node:w1" in told[0]["value"], told
    found = pyinfra("kubelet_certificates", *data(only="w1", persist="false"), "-y")
    assert found.code == 0, found.all
    assert list(requests(lab).values()) == ["Approved"]
    assert "CN" in serves(lab, "w1")
    again = pyinfra("kubelet_certificates", *data(only="w1", persist="false"), "-y")
    assert again.code == 0 and "no change" in again.out, again.all


def test_the_undo(lab: Lab) -> None:
    found = pyinfra("rollback", "-y")
    assert found.code == 0, found.all
    assert "serverTLSBootstrap: true" not in lab.run("w1", "cat /var/lib/kubelet/config.yaml").stdout
