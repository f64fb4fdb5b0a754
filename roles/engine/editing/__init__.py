"""Pure editors that change exactly what they own and keep every other byte. No host, no pyinfra, no clock."""

from roles.engine.editing import (
    any_flag,
    cluster_configuration,
    envfile,
    flags,
    known_hosts,
    kubelet_config,
    manifest,
    manifest_parts,
    unit,
    words,
    yaml_text,
)
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import KUBE, FlagChanges, FlagValues, GateChanges, flag_values, last_flag
from roles.engine.editing.kubelet_config import ABSENT
from roles.engine.editing.mapped import Mapped, line_of
from roles.engine.editing.yaml_text import YamlNode

__all__ = [
    "ABSENT",
    "KUBE",
    "FlagChanges",
    "FlagValues",
    "FormatError",
    "GateChanges",
    "Mapped",
    "YamlNode",
    "any_flag",
    "cluster_configuration",
    "envfile",
    "flag_values",
    "flags",
    "known_hosts",
    "kubelet_config",
    "last_flag",
    "line_of",
    "manifest",
    "manifest_parts",
    "unit",
    "words",
    "yaml_text",
]
