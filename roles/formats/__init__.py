"""Pure editors that change exactly what they own and keep every other byte. No host, no pyinfra, no clock."""

from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges
from roles.formats.kubelet_config import ABSENT, Absent

__all__ = ["ABSENT", "Absent", "FormatError", "GateChanges"]
