"""What is known of starts, as data: the kernel tunables that a kubelet checks, and every field and flag that names a path.

The tunables stand here for everything that compares them with a node (what runs now, and what a boot sets): `TUNABLES`.

Sources (Kubernetes 1.32 and 1.36): pkg/kubelet/cm/container_manager_linux.go (setupKernelTunables), component-helpers node/util/sysctl;
cmd/kubelet/app/server.go (run, InitializeTLS, BuildAuth, buildKubeletClientConfig), pkg/kubelet/kubelet.go (NewMainKubelet, setupDataDirs),
pkg/kubelet/certificate/bootstrap/bootstrap.go, pkg/kubelet/network/dns/dns.go, pkg/credentialprovider/plugin/plugin.go; the options of
k8s.io/apiserver/pkg/server/options, pkg/kubeapiserver/options, cmd/kube-controller-manager/app/options, cmd/kube-scheduler/app/options;
etcd server/etcdmain/config.go and client/pkg/transport/listener.go.
"""

from __future__ import annotations

from typing import Final

from roles.engine.starting.model import FileRow, Holds, KeyRow, Stops, Tunable

KUBELET: Final = "kubelet"
APISERVER, MANAGER, SCHEDULER, ETCD = "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"

#: With protectKernelDefaults a kubelet ends if one of them has another value; without it, it writes the value itself.
TUNABLES: Final = (
    Tunable("vm.overcommit_memory", 1, "the kernel always overcommits memory"),
    Tunable("vm.panic_on_oom", 0, "the kernel kills a process when memory runs out, and does not panic"),
    Tunable("kernel.panic", 10, "the kernel reboots 10 s after a panic"),
    Tunable("kernel.panic_on_oops", 1, "an oops is a panic"),
    Tunable("kernel.keys.root_maxkeys", 1000000, "keys that root may own"),
    Tunable("kernel.keys.root_maxbytes", 25000000, "bytes in the keys that root owns"),
)

_START, _PODS, _NOTE = Stops.start, Stops.pods, Stops.note


def _kubelet(holds: Holds, stops: Stops, field: str = "", flag: str = "", default: str = "", *, dates: bool = False) -> FileRow:
    return FileRow(KUBELET, holds, stops, field, flag, default, dates)


def _component(component: str, holds: Holds, *flags: str, stops: Stops = _START, dates: bool = False) -> tuple[FileRow, ...]:
    return tuple(FileRow(component, holds, stops, "", flag, "", dates) for flag in flags)


_SIGNERS = ("", "-kubelet-serving", "-kubelet-client", "-kube-apiserver-client", "-legacy-unknown")
_SERVING = ("tls-cert-file", "requestheader-client-ca-file", "client-ca-file")

#: Every field and flag that names a path of the node.
FILES: Final[tuple[FileRow, ...]] = (
    _kubelet(Holds.file, _START, flag="config"),
    _kubelet(Holds.directory, _START, flag="config-dir"),
    _kubelet(Holds.identity, _START, flag="kubeconfig"),
    # Read only if the kubeconfig is no valid identity.
    _kubelet(Holds.file, _NOTE, flag="bootstrap-kubeconfig"),
    _kubelet(Holds.certificates, _START, "authentication.x509.clientCAFile", "client-ca-file"),
    _kubelet(Holds.certificates, _START, "tlsCertFile", "tls-cert-file"),
    _kubelet(Holds.file, _START, "tlsPrivateKeyFile", "tls-private-key-file"),
    _kubelet(Holds.socket, _START, "containerRuntimeEndpoint", "container-runtime-endpoint"),
    _kubelet(Holds.socket, _START, "imageServiceEndpoint", "image-service-endpoint"),
    _kubelet(Holds.anything, _START, flag="image-credential-provider-config"),
    _kubelet(Holds.directory, _START, flag="image-credential-provider-bin-dir"),
    _kubelet(Holds.file, _START, flag="cloud-config"),
    _kubelet(Holds.written, _START, flag="root-dir", default="/var/lib/kubelet"),
    _kubelet(Holds.written, _START, flag="cert-dir", default="/var/lib/kubelet/pki"),
    _kubelet(Holds.written, _START, "podLogsDir", default="/var/log/pods"),
    _kubelet(Holds.written, _START, flag="lock-file"),
    _kubelet(Holds.file, _PODS, "resolvConf", "resolv-conf", "/etc/resolv.conf"),
    _kubelet(Holds.program, _PODS, flag="experimental-mounter-path"),
    *_component(
        APISERVER, Holds.certificates,
        "requestheader-client-ca-file", "client-ca-file", "etcd-cafile", "kubelet-certificate-authority", "peer-ca-file", "oidc-ca-file",
    ),
    *_component(APISERVER, Holds.certificates, "tls-cert-file", "etcd-certfile", dates=True),
    # Without these it starts; its requests to kubelets and to aggregated APIs are refused when they have expired.
    *_component(APISERVER, Holds.certificates, "kubelet-client-certificate", "proxy-client-cert-file"),
    *_component(
        APISERVER, Holds.file,
        "tls-private-key-file", "tls-sni-cert-key", "etcd-keyfile", "kubelet-client-key", "proxy-client-key-file",
        "service-account-key-file", "service-account-signing-key-file", "token-auth-file", "authentication-config", "authorization-config",
        "authorization-policy-file", "authentication-token-webhook-config-file", "authorization-webhook-config-file",
        "admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "encryption-provider-config",
        "egress-selector-config-file", "tracing-config-file", "cloud-config",
    ),
    # The processes start without these, with an error in their log.
    *(row for name in (APISERVER, MANAGER, SCHEDULER) for row in _component(name, Holds.file, "allow-metric-labels-manifest", stops=_NOTE)),
    *_component(MANAGER, Holds.directory, "flex-volume-plugin-dir", stops=_NOTE),
    *_component(APISERVER, Holds.socket, "service-account-signing-endpoint"),
    *_component(MANAGER, Holds.identity, "kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", dates=True),
    *_component(MANAGER, Holds.certificates, "root-ca-file", *(f"cluster-signing{one}-cert-file" for one in _SIGNERS)),
    *_component(
        MANAGER, Holds.file,
        "tls-private-key-file", "tls-sni-cert-key", "service-account-private-key-file", "cloud-config", "leader-migration-config",
        "pv-recycler-pod-template-filepath-nfs", "pv-recycler-pod-template-filepath-hostpath",
        *(f"cluster-signing{one}-key-file" for one in _SIGNERS),
    ),
    *_component(SCHEDULER, Holds.identity, "kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", dates=True),
    *_component(SCHEDULER, Holds.file, "config", "tls-private-key-file", "tls-sni-cert-key"),
    *(row for name in (MANAGER, SCHEDULER) for row in _component(name, Holds.certificates, *_SERVING)),
    # Without its directory it starts as a new, empty member.
    *_component(ETCD, Holds.directory, "data-dir", "wal-dir"),
    *_component(ETCD, Holds.written, "data-dir", "wal-dir"),
    *_component(ETCD, Holds.file, "config-file", "key-file", "peer-key-file", "client-crl-file", "peer-crl-file"),
    *_component(ETCD, Holds.certificates, "trusted-ca-file", "peer-trusted-ca-file"),
    # It starts with expired ones, and neither API servers nor other members connect to it.
    *_component(ETCD, Holds.certificates, "cert-file", "peer-cert-file", dates=True),
)  # fmt: skip

#: A flag with several certificates and their keys.
SNI: Final = "tls-sni-cert-key"
SERVING_KEY: Final = "apiserver/pkg/server/dynamiccertificates/dynamic_serving_content.go, loadCertKeyPair"
#: Every certificate whose private key a process checks when it starts.
KEYS: Final[tuple[KeyRow, ...]] = (
    KeyRow(KUBELET, "tlsCertFile", "tlsPrivateKeyFile", "cmd/kubelet/app/server.go, InitializeTLS"),
    *(KeyRow(name, "--tls-cert-file", "--tls-private-key-file", SERVING_KEY) for name in (APISERVER, MANAGER, SCHEDULER)),
    KeyRow(APISERVER, "--etcd-certfile", "--etcd-keyfile", "etcd client/pkg/transport/listener.go, baseConfig"),
    *(
        KeyRow(ETCD, f"--{one}cert-file", f"--{one}key-file", "etcd client/pkg/transport/listener.go, baseConfig")
        for one in ("", "peer-")
    ),
    KeyRow(APISERVER, "--proxy-client-cert-file", "--proxy-client-key-file", "kube-aggregator pkg/apiserver/apiserver.go"),
    *(
        KeyRow(
            MANAGER, f"--cluster-signing{one}-cert-file", f"--cluster-signing{one}-key-file",
            "pkg/controller/certificates/signer/ca_provider.go, newCAProvider, setCA", True,
        )
        for one in _SIGNERS
    ),
)  # fmt: skip

#: Fields of a kubelet that new pods take their effect from: their proof needs that a new pod starts.
NEW_PODS: Final = frozenset(
    {
        "resolvConf", "clusterDNS", "clusterDomain", "cgroupDriver", "cgroupRoot", "cgroupsPerQOS", "containerRuntimeEndpoint",
        "imageServiceEndpoint", "podLogsDir", "podPidsLimit", "cpuCFSQuotaPeriod", "seccompDefault", "singleProcessOOMKill",
        "memorySwap.swapBehavior", "userNamespaces.idsPerPod", "runtimeRequestTimeout", "cpuManagerPolicy", "memoryManagerPolicy",
        "topologyManagerPolicy", "topologyManagerScope", "imagePullCredentialsVerificationPolicy",
    }
)  # fmt: skip


def rows(component: str) -> tuple[FileRow, ...]:
    """The fields and flags of a component that name paths."""
    return tuple(row for row in FILES if row.component == component)
