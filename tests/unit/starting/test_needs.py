"""What a component needs, from its manifest: the files of the node behind the paths in its container."""

from __future__ import annotations

import pytest

from roles.engine.control_plane import find as find_components
from roles.engine.editing import manifest_parts
from roles.engine.kubelet import find
from roles.engine.starting import FILES, KEYS, PathFact, component_needs, judge, kubelet_needs, node_needs, together
from roles.engine.starting.model import Holds, ImageNeed
from tests.unit.node import node
from tests.unit.starting.samples import certificate, kubelet, well

ARGV = (
    "kube-apiserver", "--client-ca-file=/etc/kubernetes/pki/ca.crt", "--etcd-certfile=/pki/etcd.crt", "--audit-policy-file=/in/the/image",
    "--tls-sni-cert-key=/pki/a.crt,/pki/a.key:*.example", "--secure-port=6443",
)  # fmt: skip
MOUNTS = (
    b"    volumeMounts:\n    - {mountPath: /etc/kubernetes/pki, name: pki}\n    - {mountPath: /pki, name: other}\n"
    b"  volumes:\n  - {name: pki, hostPath: {path: /etc/kubernetes/pki, type: DirectoryOrCreate}}\n"
    b"  - {name: other, hostPath: {path: /srv/pki, type: Directory}}\n"
)


def manifest(*argv: str) -> bytes:
    return node.manifest(*argv).replace(b"  hostNetwork: true\n", MOUNTS + b"  hostNetwork: true\n")


def test_the_files_of_a_component() -> None:
    answer = node.answer(manifests={"kube-apiserver.yaml": manifest(*ARGV)}, components={"kube-apiserver": ARGV})
    found = find(node.parse("cp1", answer))
    (component,) = find_components(found).values()
    needs = component_needs(component)
    assert [(one.named_by, one.path, one.holds) for one in needs.paths] == [
        ("--client-ca-file", "/etc/kubernetes/pki/ca.crt", Holds.certificates),
        ("--etcd-certfile", "/srv/pki/etcd.crt", Holds.certificates),
        ("--tls-sni-cert-key", "/srv/pki/a.crt", Holds.certificates),
        ("--tls-sni-cert-key", "/srv/pki/a.key", Holds.file),
        ("volume other (Directory)", "/srv/pki", Holds.directory),
    ]
    assert [(one.image, one.policy, one.listed_as) for one in needs.images] == [("x", "Always", "x:latest")]
    # Its own port is no need; another one is.
    assert needs.ports == ()
    other = component_needs(component, manifest(*ARGV[:-1], "--secure-port=7443"))
    assert [one.port for one in other.ports] == [7443]
    whole = node_needs(found, [component])
    assert whole == together(kubelet_needs(found), needs)
    assert judge("cp1", whole, well(whole)) == []
    fine = well(whole)
    old = {**fine.pems, "/srv/pki/etcd.crt": certificate(days=-3)}
    expired = well(whole, pems=old, paths={**fine.paths, "/srv/pki/a.key": PathFact("none")})
    assert [str(one).split(";")[0] for one in judge("cp1", whole, expired)] == [
        "its kube-apiserver would not start again: the certificate in /srv/pki/etcd.crt (--etcd-certfile) expired on 2026-05-29",
        "its kube-apiserver would not start again: --tls-sni-cert-key names /srv/pki/a.key, which does not exist",
    ]


@pytest.mark.parametrize(
    ("image", "policy", "listed"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.3", "IfNotPresent", "registry.k8s.io/kube-apiserver:v1.36.3"),
        ("r:5000/a", "Always", "r:5000/a:latest"),
        ("r/a:latest", "Always", "r/a:latest"),
        ("docker.io/a:1", "IfNotPresent", "a:1"),
        ("index.docker.io/o/a:1", "IfNotPresent", "o/a:1"),
        ("r/a:1@sha256:0f", "IfNotPresent", "sha256:0f"),
        ("r/a@sha256:0f", "IfNotPresent", "sha256:0f"),
    ],
)
def test_what_the_runtime_lists_of_an_image(image: str, policy: str, listed: str) -> None:
    text = (
        b"spec: {containers: [{name: a, image: '%s'}], initContainers: [{name: i, image: 'r/i:1', imagePullPolicy: Never}]}"
        % image.encode()
    )
    assert manifest_parts.images(text) == [("r/i:1", "Never"), (image, policy)]
    assert ImageNeed("a", image, policy).listed_as == listed


def test_each_certificate_with_its_key() -> None:
    argv = (*ARGV, "--etcd-keyfile=/pki/etcd.key", "--proxy-client-cert-file=/pki/proxy.crt")
    answer = node.answer(manifests={"kube-apiserver.yaml": manifest(*argv)}, components={"kube-apiserver": argv})
    (component,) = find_components(find(node.parse("cp1", answer))).values()
    found = [(one.row.key, one.certificate, one.key) for one in component_needs(component).keys]
    assert found == [
        ("--etcd-keyfile", "/srv/pki/etcd.crt", "/srv/pki/etcd.key"),
        ("--tls-sni-cert-key", "/srv/pki/a.crt", "/srv/pki/a.key"),
    ]
    names = {(row.component, one.removeprefix("--")) for row in KEYS for one in (row.certificate, row.key)}
    assert names <= {(row.component, row.field or row.flag) for row in FILES}


def test_the_nodes_own_etcd_is_judged_with_its_data() -> None:
    argv = (
        "etcd",
        "--data-dir=/pki/data",
        "--cert-file=/pki/server.crt",
        "--key-file=/pki/server.key",
        "--peer-trusted-ca-file=/pki/ca.crt",
    )
    found = find(node.parse("cp1", node.answer(manifests={"etcd.yaml": manifest(*argv)})))
    whole = node_needs(found)
    assert whole is not None
    fine = well(whole)
    assert judge("cp1", whole, fine) == []
    lost = well(
        whole,
        pems={**fine.pems, "/srv/pki/server.crt": certificate(days=-3)},
        paths={**fine.paths, "/srv/pki/data": PathFact("none", makeable=True), "/srv/pki/ca.crt": PathFact("none")},
    )
    assert [str(one).split(";")[0] for one in judge("cp1", whole, lost)] == [
        "its etcd would not start again: --data-dir names /srv/pki/data, which does not exist",
        "its etcd would not start again: --peer-trusted-ca-file names /srv/pki/ca.crt, which does not exist",
        "its etcd would not start again: the certificate in /srv/pki/server.crt (--cert-file) expired on 2026-05-29",
    ]
    assert [one.key for one in whole.keys] == ["/srv/pki/server.key"]
    # Under another name it is somebody else's pod.
    other = {"etcd.yaml": manifest(*argv).replace(b"name: etcd\n  namespace", b"name: mine\n  namespace")}
    assert node_needs(find(node.parse("cp1", node.answer(manifests=other)))) == kubelet_needs(found)


def test_the_providers_of_credentials() -> None:
    words = ("--image-credential-provider-config=/c.yaml", "--image-credential-provider-bin-dir=/b")
    needs = kubelet_needs(kubelet(), argv=(*node.KUBEADM_ARGV, *words))
    assert (needs.provider_config, needs.provider_folder) == ("/c.yaml", "/b")


def test_what_the_files_say_counts_and_flags_before_them() -> None:
    needs = kubelet_needs(kubelet("resolvConf: /a\n"), argv=("kubelet", "--resolv-conf=/b", "--pod-manifest-path=/c"))
    assert [one.path for one in needs.paths if one.named_by == "resolvConf"] == ["/b"]
    changed = kubelet_needs(kubelet("resolvConf: /a\n"), {"/var/lib/kubelet/config.yaml": node.CONFIG + b"resolvConf: /z\n"})
    assert [one.path for one in changed.paths if one.named_by == "resolvConf"] == ["/z"]
    # A path that no line of a script can hold is not asked for.
    assert all("\n" not in one.path for one in kubelet_needs(kubelet('resolvConf: "/a\\nb"\n')).paths)
