"""A control plane whose flags, files and configurations fit each other."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from roles.engine.certificates import Material, parse_material
from roles.engine.pairs import Handshake, KubeletSide, Picture, Server
from roles.engine.pairs.table import COREDNS, DNS_SERVICE, FLANNEL, KUBE_PROXY, METRICS_SERVER, PRIORITY_CLASSES
from tests.unit.api.world import Authority

API, MANAGER, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
CA, OTHER = Authority("ca"), Authority("other")


def held(path: str, *parts: bytes) -> Material:
    """A file; private keys as their node names them."""
    keys = b"".join(
        load_pem_private_key(one, None).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for one in parts
        if b"PRIVATE" in one
    )
    return parse_material(path, b"".join(one for one in parts if b"PRIVATE" not in one), keys)


def pem(data: bytes) -> bytes:
    return load_pem_private_key(data, None).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


SERVING, SERVING_KEY = CA.issue("kube-apiserver", "10.96.0.1")
CLIENT, CLIENT_KEY = CA.issue("kubelet-client")
PROXY, PROXY_KEY = CA.issue("front-proxy-client")
_, SA_KEY = CA.issue("sa")
CA_CERT, CA_KEY = CA.issue("signing")
FILES = {
    "/pki/ca.crt": held("/pki/ca.crt", CA.pem),
    "/pki/other.crt": held("/pki/other.crt", OTHER.pem),
    "/pki/serving.crt": held("/pki/serving.crt", SERVING),
    "/pki/serving.key": held("/pki/serving.key", SERVING_KEY),
    "/pki/client.crt": held("/pki/client.crt", CLIENT),
    "/pki/client.key": held("/pki/client.key", CLIENT_KEY),
    "/pki/proxy.crt": held("/pki/proxy.crt", PROXY),
    "/pki/proxy.key": held("/pki/proxy.key", PROXY_KEY),
    "/pki/sa.pub": held("/pki/sa.pub", pem(SA_KEY)),
    "/pki/sa.key": held("/pki/sa.key", SA_KEY),
    "/pki/sign.crt": held("/pki/sign.crt", CA_CERT),
    "/pki/sign.key": held("/pki/sign.key", CA_KEY),
}
API_FLAGS = {
    "service-cluster-ip-range": "10.96.0.0/12", "client-ca-file": "/pki/ca.crt", "tls-cert-file": "/pki/serving.crt",
    "tls-private-key-file": "/pki/serving.key", "kubelet-client-certificate": "/pki/client.crt", "kubelet-client-key": "/pki/client.key",
    "proxy-client-cert-file": "/pki/proxy.crt", "proxy-client-key-file": "/pki/proxy.key", "requestheader-client-ca-file": "/pki/ca.crt",
    "requestheader-allowed-names": "front-proxy-client", "service-account-key-file": "/pki/sa.pub",
    "service-account-signing-key-file": "/pki/sa.key", "service-account-issuer": "https://kubernetes.default",
    "etcd-certfile": "/pki/client.crt", "etcd-keyfile": "/pki/client.key", "authorization-mode": "Node,RBAC",
    "enable-admission-plugins": "NodeRestriction", "secure-port": "6443", "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
    "kubelet-certificate-authority": "/pki/ca.crt", "etcd-cafile": "/pki/ca.crt",
}  # fmt: skip
MANAGER_FLAGS = {
    "cluster-cidr": "10.244.0.0/16", "allocate-node-cidrs": "true", "service-cluster-ip-range": "10.96.0.0/12", "root-ca-file": "/pki/ca.crt",
    "cluster-signing-cert-file": "/pki/sign.crt", "cluster-signing-key-file": "/pki/sign.key", "service-account-private-key-file": "/pki/sa.key",
    "kubeconfig": "/etc/manager.conf",
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "maxPods": 110, "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local", "serverTLSBootstrap": True, "rotateCertificates": True,
    "port": 10250, "evictionHard": {"imagefs.available": "15%"}, "authorization": {"mode": "Webhook"},
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": "/pki/ca.crt"}},
    "tlsCertFile": "/pki/serving.crt", "tlsPrivateKeyFile": "/pki/serving.key",
}  # fmt: skip
NODE = {
    "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}], "capacity": {"ephemeral-storage": "50Gi"}},
}


def every(flags: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: (value,) for name, value in flags.items()}


def well() -> Picture:
    """Everything fits."""
    return Picture(
        (
            Server("cp1", API, every(API_FLAGS), (6443,)), Server("cp1", MANAGER, every(MANAGER_FLAGS), (10257,)),
            Server("cp1", SCHEDULER, every({"kubeconfig": "/etc/scheduler.conf"}), (10259,)),
            Server("cp1", "etcd", every({"trusted-ca-file": "/pki/ca.crt", "cert-file": "/pki/serving.crt"})),
        ),
        (KubeletSide("w1", "node-1", 36, FIELDS, every({"bootstrap-kubeconfig": "/etc/b", "kubeconfig": "/etc/kubelet.conf"})),),
        {"node-1": NODE, "cp1": {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}},
        {
            DNS_SERVICE: {"spec": {"clusterIPs": ["10.96.0.10"]}},
            COREDNS: {"data": {"Corefile": ".:53 {\n    kubernetes cluster.local in-addr.arpa {\n    }\n}\n"}},
            KUBE_PROXY: {"data": {"config.conf": "clusterCIDR: 10.244.0.0/16\n"}},
            FLANNEL: {"data": {"net-conf.json": '{"Network": "10.244.0.0/16"}'}},
            PRIORITY_CLASSES: {"items": [{"value": 2000000000}, {"value": 1000}]},
            METRICS_SERVER: {"spec": {"template": {"spec": {"containers": [{"args": ["--metric-resolution=15s"]}]}}}},
        },
        {(host, path): one for host in ("cp1", "w1") for path, one in FILES.items()},
        {place: held(place[1], CA.pem) for place in (("w1", "/etc/kubelet.conf"), ("cp1", "/etc/manager.conf"), ("cp1", "/etc/scheduler.conf"))},
        {("node-1", "/pki/ca.crt"): Handshake("192.0.2.11:10250")},
    )  # fmt: skip


def flag(component: str, **values: str | None) -> Any:
    changes = {name.replace("_", "-"): None if value is None else (value,) for name, value in values.items()}
    return lambda picture: picture.with_flags("cp1", component, changes)


def field(**values: Any) -> Any:
    return lambda picture: picture.with_settings("w1", {name.replace("__", "."): value for name, value in values.items()})
