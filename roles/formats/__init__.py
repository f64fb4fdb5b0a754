"""Pure editors that change exactly what they own and keep every other byte. No host, no pyinfra, no clock."""

from roles.formats import cluster_configuration, envfile, flags, known_hosts, kubelet_config, manifest, unit, words, yaml_text
from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.kubelet_config import ABSENT, Absent
from roles.formats.mapped import Mapped, line_of

__all__ = [
    "ABSENT",
    "Absent",
    "FormatError",
    "GateChanges",
    "Mapped",
    "cluster_configuration",
    "envfile",
    "flags",
    "known_hosts",
    "kubelet_config",
    "line_of",
    "manifest",
    "unit",
    "words",
    "yaml_text",
]
