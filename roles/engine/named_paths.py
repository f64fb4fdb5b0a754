"""Which flags of control-plane components name a path that the component writes, and the paths in a flag's value. Pure data.

What components and kubelets read is in roles/engine/starting/table.py (`FILES`): they do not start without it.

Sources (Kubernetes 1.36): the --help of each program; k8s.io/apiserver/pkg/server/options/{audit,serving,feature}.go (ensureLogFile,
MaybeDefaultWithSelfSignedCerts, DebugSocketPath). tests/integration/test_flag_questions.py compares both tables with the programs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

API_SERVER: Final = "kube-apiserver"
MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBELET: Final = "kubelet"
_ALL = (API_SERVER, MANAGER, SCHEDULER)


@dataclass(frozen=True)
class WrittenPath:
    """`flag`: its name; `what`: the file, for people. `directory`: the path is that of a directory. `unless`: another flag with which the
    process does not write it ("": none)."""

    flag: str
    programs: tuple[str, ...]
    what: str
    directory: bool = False
    unless: str = ""


WRITTEN_PATHS: Final = (
    WrittenPath("audit-log-path", (API_SERVER,), "the log"),
    WrittenPath("debug-socket-path", (API_SERVER,), "the socket"),
    WrittenPath("cert-dir", _ALL, "the key and the certificate that it makes itself", directory=True, unless="tls-cert-file"),
    WrittenPath("write-config-to", (SCHEDULER,), "the configuration"),
    # Until 1.25.
    WrittenPath("log-file", _ALL, "the log"),
    WrittenPath("log-dir", _ALL, "the log", directory=True),
)


def written_path(program: str, flag: str) -> WrittenPath | None:
    """What a component writes at the path that a flag names; None if it writes nothing there."""
    return next((one for one in WRITTEN_PATHS if program in one.programs and one.flag == flag), None)


def paths_in(values: Sequence[str]) -> list[str]:
    """The absolute paths in the values of a flag, normalized: `CERT,KEY:NAMES` and lists have several, `-` has none, and a URL of a socket
    (`unix:///run/x.sock`) is its path."""
    words = [word for value in values for word in re.split(r"[,=]|:(?!//)", value.removeprefix("unix://"))]
    return [posixpath.normpath(word) for word in words if word.startswith("/")]
