"""Pure editors that change exactly what they own and keep every other byte. No host, no pyinfra, no clock."""

from roles.formats.errors import FormatError
from roles.formats.flags import GateChanges

__all__ = ["FormatError", "GateChanges"]
