"""Which flags of the components, and which fields and flags of a kubelet, name a path, and what the process does there. Pure data.

Sources (Kubernetes 1.36): the --help of each program; k8s.io/apiserver/pkg/server/options/{audit,serving,feature}.go (ensureLogFile,
MaybeDefaultWithSelfSignedCerts, DebugSocketPath), cmd/kubelet/app/server.go and options.go, pkg/kubelet/kubelet.go (setupDataDirs).
tests/unit/test_named_paths.py compares the table with what the programs list.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

API_SERVER: Final = "kube-apiserver"
MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBELET: Final = "kubelet"


class Use(StrEnum):
    """What a process does with a path. `read`: it reads a file when it starts, and does not start without it. `later`: it reads a file, but
    not to start. `written`: it creates a file, or adds to it. `directory`: it reads files there. `written directory`: it creates files
    there. `socket`: it connects to it."""

    READ = "read"
    LATER = "later"
    WRITTEN = "written"
    DIRECTORY = "directory"
    WRITTEN_DIRECTORY = "written directory"
    SOCKET = "socket"


@dataclass(frozen=True)
class NamedPath:
    """`name`: a pattern for the whole name of a flag (without dashes), or a field of a KubeletConfiguration (dots between its parts).
    `unless`: other flags with which the process does not use it. `what`: the file, for people."""

    name: str
    use: Use
    programs: tuple[str, ...]
    what: str = ""
    unless: tuple[str, ...] = ()


_ALL = (API_SERVER, MANAGER, SCHEDULER)
_API = (API_SERVER,)
_OTHERS = (MANAGER, SCHEDULER)
_KUBELET = (KUBELET,)
NAMED_PATHS: Final = (
    # Written.
    NamedPath("audit-log-path", Use.WRITTEN, _API, "the log"),
    NamedPath("log-file", Use.WRITTEN, _ALL, "the log"),  # until 1.25
    NamedPath("log-dir", Use.WRITTEN_DIRECTORY, _ALL, "the log"),  # until 1.25
    NamedPath("debug-socket-path", Use.WRITTEN, _API, "the socket"),
    NamedPath("write-config-to", Use.WRITTEN, (SCHEDULER,), "the configuration"),
    NamedPath("cert-dir", Use.WRITTEN_DIRECTORY, _ALL, "the key and the certificate that it makes itself", ("tls-cert-file",)),
    # Read.
    NamedPath("etcd-(?:cafile|certfile|keyfile)", Use.READ, _API),
    NamedPath("encryption-provider-config|audit-policy-file|audit-webhook-config-file", Use.READ, _API),
    NamedPath("tls-(?:cert-file|private-key-file|sni-cert-key)|client-ca-file|requestheader-client-ca-file", Use.READ, _ALL),
    NamedPath("authentication-config|authentication-token-webhook-config-file|token-auth-file|oidc-ca-file", Use.READ, _API),
    NamedPath("authorization-config|authorization-policy-file|authorization-webhook-config-file", Use.READ, _API),
    NamedPath("service-account-(?:key-file|signing-key-file)", Use.READ, _API),
    NamedPath("service-account-signing-endpoint", Use.SOCKET, _API),
    NamedPath("egress-selector-config-file|admission-control-config-file|tracing-config-file", Use.READ, _API),
    NamedPath(
        "kubelet-(?:certificate-authority|client-certificate|client-key)|proxy-client-(?:cert|key)-file|peer-ca-file", Use.READ, _API
    ),
    NamedPath("allow-metric-labels-manifest", Use.READ, _ALL),
    NamedPath("kubeconfig|authentication-kubeconfig|authorization-kubeconfig", Use.READ, _OTHERS),
    NamedPath("config", Use.READ, (SCHEDULER,)),
    NamedPath("cluster-signing-(?:[a-z-]+-)?(?:cert|key)-file|root-ca-file|service-account-private-key-file", Use.READ, (MANAGER,)),
    NamedPath("leader-migration-config|cloud-config", Use.READ, (MANAGER,)),
    NamedPath("pv-recycler-pod-template-filepath-(?:hostpath|nfs)", Use.READ, (MANAGER,)),
    NamedPath("flex-volume-plugin-dir", Use.DIRECTORY, (MANAGER,)),
    # Of a kubelet: fields, and flags that are no fields.
    NamedPath(r"tlsCertFile|tlsPrivateKeyFile|authentication\.x509\.clientCAFile", Use.READ, _KUBELET),
    NamedPath("tls-cert-file|tls-private-key-file|client-ca-file", Use.READ, _KUBELET),
    NamedPath("kubeconfig|config|image-credential-provider-config|cloud-config", Use.READ, _KUBELET),
    NamedPath("bootstrap-kubeconfig", Use.READ, _KUBELET, unless=("a kubeconfig with a certificate that is valid",)),
    NamedPath("resolvConf|resolv-conf", Use.LATER, _KUBELET),
    NamedPath("boot-id-file|machine-id-file|container-hints|experimental-mounter-path", Use.LATER, _KUBELET),
    NamedPath("staticPodPath|pod-manifest-path|config-dir|image-credential-provider-bin-dir", Use.DIRECTORY, _KUBELET),
    NamedPath("volumePluginDir|volume-plugin-dir", Use.WRITTEN_DIRECTORY, _KUBELET),
    NamedPath("podLogsDir|pod-logs-dir|root-dir|cert-dir|log-dir", Use.WRITTEN_DIRECTORY, _KUBELET),
    NamedPath("lock-file|log-file", Use.WRITTEN, _KUBELET),
    NamedPath("containerRuntimeEndpoint|container-runtime-endpoint", Use.SOCKET, _KUBELET),
    NamedPath("imageServiceEndpoint|image-service-endpoint|containerd", Use.SOCKET, _KUBELET),
)


def named_path(program: str, name: str) -> NamedPath | None:
    """What a flag or field names; None if it names no path."""
    return next((one for one in NAMED_PATHS if program in one.programs and re.fullmatch(one.name, name)), None)


def paths_in(values: Sequence[str]) -> list[str]:
    """The absolute paths in the values of a flag, normalized: `CERT,KEY:NAMES` and lists have several, `-` has none, and a URL of a socket
    (`unix:///run/x.sock`) is its path."""
    words = [word for value in values for word in re.split(r"[,=]|:(?!//)", value.removeprefix("unix://"))]
    return [posixpath.normpath(word) for word in words if word.startswith("/")]
