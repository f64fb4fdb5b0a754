"""Each pair of the table: a cluster in which everything fits, and what breaks each pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.engine.certificates import Material, Unread, parse_own
from roles.engine.control_plane import find as components
from roles.engine.findings import Severity
from roles.engine.kubelet import find
from roles.engine.pairs import (
    PAIRS,
    Handshake,
    Picture,
    Server,
    changed,
    concerned,
    files_of,
    is_way,
    mismatches,
    reference,
    sentence,
    server,
)
from roles.engine.pairs.__main__ import PAGE
from tests.unit.node import node
from tests.unit.pairs.world import (
    API,
    CA,
    CLIENT_KEY,
    FILES,
    MANAGER,
    MANAGER_FLAGS,
    NODE,
    SCHEDULER,
    SERVING,
    SERVING_KEY,
    every,
    field,
    flag,
    held,
    pem,
    well,
)


def test_all_fits() -> None:
    assert [sentence(one) for one in mismatches(well())] == []


def kubelet(**flags: str) -> Any:
    given = {name.replace("_", "-"): (value,) for name, value in flags.items()}
    return lambda picture: replace(picture, kubelets=tuple(replace(one, flags={**one.flags, **given}) for one in picture.kubelets))


TRUSTING = ("kubelet", MANAGER, SCHEDULER)
PERIODS = [{"priority": 0, "shutdownGracePeriodSeconds": 30}, {"priority": 2000, "shutdownGracePeriodSeconds": 9}]
BROKEN = [
    ("pods-fit-the-nodes-range", field(maxPods=400), "10.244.1.0/24 has 254 addresses for 400 pods"),
    ("pods-fit-new-ranges", flag(MANAGER, node_cidr_mask_size="26"), "a /26 has 62 addresses for 110 pods"),
    ("node-range-is-part-of-the-clusters", flag(MANAGER, node_cidr_mask_size="12"), "/12 is no part of 10.244.0.0/16"),
    ("cluster-range-covers-the-nodes", flag(MANAGER, cluster_cidr="10.245.0.0/16"), "10.244.1.0/24 is outside of 10.245.0.0/16"),
    ("allocation-needs-a-range", flag(MANAGER, cluster_cidr=None), "no range is set"),
    ("service-range-of-both", flag(MANAGER, service_cluster_ip_range="10.97.0.0/16"), "differ"),
    ("services-apart-from-pods", flag(API, service_cluster_ip_range="10.244.128.0/17"), "overlap"),
    ("services-apart-from-nodes-ranges", flag(API, service_cluster_ip_range="10.244.1.0/25"), "overlap"),
    ("dns-within-services", field(clusterDNS=["10.32.0.10"]), "10.32.0.10 is outside of it"),
    ("dns-is-the-service", field(clusterDNS=["10.96.0.11"]), "another address"),
    ("domain-is-served", field(clusterDomain="k8s.example"), "it serves cluster.local, in-addr.arpa"),
    ("service-address-in-the-certificate", flag(API, service_cluster_ip_range="10.32.0.0/24"), "has not the address 10.32.0.1"),
    ("proxy-range", flag(MANAGER, cluster_cidr="10.240.0.0/12"), "differ"),
    ("flannel-range", flag(MANAGER, cluster_cidr="10.240.0.0/12"), "differ"),
    ("addresses-of-each-family", kubelet(node_ip="2001:db8::1"), "no IPv4 address"),
    ("node-ports-apart-from-the-kubelet", flag(API, service_node_port_range="10000-20000"), "port 10250 is in it"),
    ("node-ports-apart-from-the-api", flag(API, service_node_port_range="6000+1000"), "port 6443 is in it"),
    ("kubelets-trust-the-api", field(authentication__x509__clientCAFile="/pki/other.crt"), "no CA in /pki/other.crt has signed"),
    ("kubelets-trust-the-api", field(authentication__x509__clientCAFile=None), "accepts no certificate of a client"),
    ("api-is-known-where-kubelets-report", flag(API, client_ca_file="/pki/other.crt"), "no CA in /pki/other.crt has signed"),
    ("tokens-are-accepted", flag(API, service_account_key_file="/pki/client.crt"), "no key in /pki/client.crt belongs"),
    ("controllers-tokens-are-accepted", flag(MANAGER, service_account_private_key_file="/pki/client.key"), "belongs to the one in"),
    ("audience-of-the-issuer", flag(API, api_audiences="vault"), "https://kubernetes.default is not among them"),
    ("pods-trust-the-api", flag(MANAGER, root_ca_file="/pki/other.crt"), "no CA in /pki/other.crt has signed"),
    *((f"{owner}-trusts-the-api", flag(API, tls_cert_file="/pki/other.crt"), "has signed the certificate in /pki/other.crt") for owner in TRUSTING),
    ("etcd-accepts-the-api", flag(API, etcd_certfile="/pki/other.crt"), "no CA in /pki/ca.crt has signed the certificate in /pki/other.crt"),
    ("api-trusts-etcd", flag(API, etcd_cafile="/pki/other.crt"), "no CA in /pki/other.crt has signed"),
    ("extensions-trust-the-front-proxy", flag(API, requestheader_client_ca_file="/pki/other.crt"), "no CA in /pki/other.crt"),
    ("extensions-know-the-front-proxy", flag(API, requestheader_allowed_names="aggregator"), "'front-proxy-client' is not among them"),
    ("key-for-kubelets", flag(API, kubelet_client_key="/pki/sa.key"), "belongs to the one in /pki/sa.key"),
    ("serving-certificates-are-signed", flag(MANAGER, controllers="*,-csrsigning"), "leaves out the controller that signs"),
    ("client-certificates-are-signed", flag(MANAGER, cluster_signing_cert_file=None, cluster_signing_key_file=None), "it has neither"),
    ("signed-for-as-long-as-renewed", field(rotateCertificates=False), "does not renew it"),
    ("ciphers-of-kube-apiserver", flag(API, tls_cipher_suites="TLS_RSA_WITH_AES_256_GCM_SHA384"), "HTTP/2 needs"),
    ("ciphers-of-kubelet", field(tlsCipherSuites=["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]), "HTTP/2 needs"),
    ("nodes-are-authorized", flag(API, authorization_mode="RBAC"), "Node is not among them"),
    ("controllers-are-authorized", flag(API, authorization_mode="Node"), "RBAC or ABAC is not among them"),
    ("nodes-are-restricted", flag(API, enable_admission_plugins="NamespaceLifecycle"), "NodeRestriction is off"),
    ("needed-apis-are-on", flag(API, runtime_config="api/all=false"), "v1"),
    ("needed-apis-are-on", flag(API, runtime_config="coordination.k8s.io/v1=false"), "coordination.k8s.io/v1 is off"),
    ("tokens-reach-kubelets", field(authentication__webhook__enabled=False), "does not ask the API"),
    ("nodes-have-a-preferred-address", flag(API, kubelet_preferred_address_types="ExternalIP"), "it has only InternalIP"),
    ("probes-of-kube-apiserver", flag(API, secure_port="8443"), "they ask port 6443"),
    ("probes-of-kube-scheduler", flag(SCHEDULER, secure_port="10260"), "they ask port 10259"),
    ("kubelet-listens-where-the-node-is", field(address="127.0.0.1"), "127.0.0.1 is not among them"),
    ("api-listens-for-all-nodes", flag(API, bind_address="127.0.0.1"), "only its own node"),
    ("goaway-needs-a-balancer", flag(API, goaway_chance="0.001"), "with one API server"),
    ("clouds-agree", kubelet(cloud_provider="external"), "they differ"),
    ("lease-within-the-grace-period", field(nodeLeaseDurationSeconds=300), "renewed each 75 s"),
    ("lease-within-the-grace-period", flag(MANAGER, node_monitor_grace_period="10s"), "renewed each 10 s"),
    ("several-renewals-within-the-grace-period", flag(MANAGER, node_monitor_grace_period="25s"), "not more than 3 times"),
    ("status-within-the-grace-period", field(nodeStatusUpdateFrequency="1m"), "50s is not longer than 1m"),
    ("looks-within-the-grace-period", flag(MANAGER, node_monitor_period="1m"), "50s is not longer than 1m"),
    ("lease-of-kube-scheduler", flag(SCHEDULER, leader_elect_renew_deadline="15s"), "15s is not longer than 15s"),
    ("renewals-of-kube-controller-manager", flag(MANAGER, leader_elect_retry_period="9s"), "not more than 1.2 times"),
    ("readiness-within-initialization", flag(MANAGER, horizontal_pod_autoscaler_initial_readiness_delay="6m"), "not longer"),
    ("autoscalers-see-new-metrics", flag(MANAGER, horizontal_pod_autoscaler_sync_period="5s"), "measures each 15s"),
    ("shutdown-periods-have-pods", field(shutdownGracePeriodByPodPriority=[*PERIODS, {"priority": 2000000000}]), "group of priority 2000"),
    ("images-go-before-pods", field(imageGCHighThresholdPercent=95), "before 95%"),
    ("logs-fit-the-disk", field(containerLogMaxSize="2Gi", containerLogMaxFiles=5), "10240 MiB"),
    ("topology-has-something-to-align", field(topologyManagerPolicy="restricted"), "no manager assigns"),
    ("burst-kubeAPIQPS", field(kubeAPIBurst=10), "10 is less than 50"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words"), BROKEN, ids=[f"{name}-{number}" for number, (name, _, _) in enumerate(BROKEN)])
def test_a_change_that_breaks_a_pair(name: str, change: Any, words: str) -> None:
    before = well()
    after = change(before)
    found = {one.pair.name: one for one in changed(before, after)}
    assert name in found and words in sentence(found[name])
    assert found[name].pair.one_way or name in {one.pair.name for one in mismatches(after)}
    if not name.startswith(("clouds", "addresses")):  # flags of kubelets, which no deploy changes
        assert name in {pair.name for pair in concerned(before, after)}
    # A change that touches neither side says nothing of it, also where it does not fit.
    elsewhere = flag(SCHEDULER, v="4")(after)
    assert changed(after, elsewhere) == []


def test_both_sides_changed_in_one_run_fit() -> None:
    before = well()
    alone = flag(MANAGER, node_monitor_grace_period="10s")(before)
    assert [one.pair.name for one in changed(before, alone) if one.pair.severity is Severity.critical] == ["lease-within-the-grace-period"]
    both = field(nodeLeaseDurationSeconds=8, nodeStatusUpdateFrequency="2s")(alone)
    assert changed(before, both) == []


def test_what_is_not_known_is_not_judged() -> None:
    before = replace(well(), nodes=None, objects={}, materials={}, authorities={}, handshakes={})
    for change in (field(maxPods=400), flag(API, client_ca_file="/pki/other.crt"), flag(MANAGER, cluster_cidr="10.240.0.0/12")):
        assert changed(before, change(before)) == []


@pytest.mark.parametrize(("path", "name"), [("/pki/sa.key", "tokens-are-accepted"), ("/pki/ca.crt", "pods-trust-the-api")])
def test_a_file_that_cannot_be_read_is_not_known_to_fit(path: str, name: str) -> None:
    """Neither fine nor wrong."""
    without = replace(well(), materials={**well().materials, ("cp1", path): Material(path, unread=Unread.no_openssl)})
    found = {one.pair.name: one for one in mismatches(without)}
    assert name in found and not any(one.is_known for one in found.values())
    assert sentence(found[name]).startswith("no sign that ") and f"{path}: the node has no openssl" in sentence(found[name])
    # Of several keys, one may be the right one.
    keys = (("cp1", "/pki/other.pub"), Material("/pki/other.pub", unread=Unread.no_openssl))
    several = replace(well(), materials=dict([*well().materials.items(), keys]))
    after = flag(API, service_account_key_file="/pki/other.pub")(several)
    assert {one.is_known for one in changed(several, after)} == {False}


def test_a_file_is_where_its_node_has_it() -> None:
    """The container of the API server has it at another path."""
    argv = ("kube-apiserver", "--client-ca-file=/in/ca.crt", "--tls-cert-file=/pki/serving.crt", "--audit-log-path=/in/the/image")
    mounts = b"    volumeMounts:\n    - {mountPath: /in, name: pki}\n  volumes:\n  - {name: pki, hostPath: {path: /srv/pki}}\n"
    manifest = node.manifest(*argv).replace(b"  hostNetwork: true\n", mounts + b"  hostNetwork: true\n")
    (component,) = components(
        find(node.parse("cp1", node.answer(manifests={"a.yaml": manifest}, components={"kube-apiserver": argv})))
    ).values()
    one = server(component)
    assert one.on_node("/in/ca.crt") == "/srv/pki/ca.crt" and one.on_node("/pki/serving.crt") == "/pki/serving.crt"
    (pair,) = (pair for pair in PAIRS if pair.name == "api-is-known-where-kubelets-report")
    picture = Picture((one,))
    assert files_of(picture, [pair.here]) == {("cp1", "/srv/pki/ca.crt")}
    held_there = replace(picture, materials={("cp1", "/srv/pki/ca.crt"): FILES["/pki/ca.crt"]})
    assert pair.here.get(held_there) == {"cp1": Material("/pki/ca.crt", FILES["/pki/ca.crt"].certificates)}
    moved = held_there.with_flags("cp1", API, {}, manifest.replace(b"/srv/pki", b"/etc/pki"), component.container)
    assert moved.servers[0].on_node("/in/ca.crt") == "/etc/pki/ca.crt"


def test_the_key_in_a_file_of_the_run_is_known_here() -> None:
    assert parse_own("/k", SERVING_KEY).public_keys == FILES["/pki/serving.crt"].public_keys
    assert parse_own("/k", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n").unread is Unread.locked


def test_what_a_kubelet_serves_is_asked() -> None:
    without = flag(API, kubelet_certificate_authority=None)(well())
    problem = Handshake("192.0.2.11:10250", "IP address mismatch")
    after = replace(well(), handshakes={("node-1", "/pki/ca.crt"): problem})
    (found,) = changed(without, after)
    assert found.there == ("w1",) and "192.0.2.11:10250 serves: IP address mismatch" in sentence(found)
    assert changed(without, well()) == []


def test_a_kubelet_keeps_what_the_api_trusts() -> None:
    (found,) = changed(well(), field(serverTLSBootstrap=None)(well()))
    assert (found.pair.name, found.pair.severity) == ("kubelets-keep-what-the-api-trusts", Severity.critical)
    # The handshakes decide about a flag, and about what an audit finds: a kubelet may have been given files.
    without = flag(API, kubelet_certificate_authority=None)(field(serverTLSBootstrap=None)(well()))
    assert changed(without, field(serverTLSBootstrap=None)(well())) == []


def test_a_new_content_of_a_file_touches_its_pairs() -> None:
    before = well()
    after = replace(before, materials={**before.materials, ("cp1", "/pki/sa.pub"): held("/pki/sa.pub", pem(CLIENT_KEY))})
    assert {one.pair.name for one in changed(before, after)} == {"tokens-are-accepted", "controllers-tokens-are-accepted"}


def test_a_chain_is_followed() -> None:
    assert FILES["/pki/ca.crt"].verifies(held("/a", SERVING, CA.pem)) and not FILES["/pki/other.crt"].verifies(held("/a", SERVING, CA.pem))


def test_the_rows_are_whole() -> None:
    names = [pair.name for pair in PAIRS]
    assert len(names) == len(set(names)) >= 25
    tried = {name for name, _, _ in BROKEN}
    alike = {"ciphers-of", "probes-of", "lease-of", "renewals-of", "one", "burst"}
    left = {name for name in names if name not in tried and not any(name.startswith(f"{one}-") for one in alike)}
    assert left == {
        "api-trusts-kubelets",
        "kubelets-keep-what-the-api-trusts",
        "kubelet-is-not-open",
        "cloud-has-initialized",
        "ranges-for-all-nodes",
    }


def test_more_nodes_than_ranges() -> None:
    before = replace(well(), nodes={"node-1": NODE, "node-2": NODE})
    found = {one.pair.name: one for one in changed(before, flag(MANAGER, cluster_cidr="10.244.1.0/24")(before))}
    assert "has room for 1 nodes with a /24 each, and there are 2" in found["ranges-for-all-nodes"].why


def test_the_page_is_in_step_with_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.markdown(), f"run `{reference.COMMAND}`"


def test_two_leaders() -> None:
    before = well()
    before = replace(before, servers=(*before.servers, Server("cp2", MANAGER, every(MANAGER_FLAGS))))
    (found,) = changed(before, flag(MANAGER, leader_elect="false")(before))
    assert found.pair.name == "one-kube-controller-manager" and "2 of them" in found.why


def test_the_ways_of_daytwo_itself() -> None:
    assert is_way(API, "kubelet-certificate-authority") and is_way(API, "authorization-mode") and is_way(API, "egress-selector-config-file")
    assert is_way("kubelet", "authentication.webhook.enabled") and is_way("kubelet", "tlsMinVersion") and is_way("kubelet", "port")
    assert not is_way(API, "v") and not is_way("kubelet", "maxPods") and not is_way(SCHEDULER, "tls-min-version")
