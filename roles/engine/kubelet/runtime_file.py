"""containerd's configuration file: the cgroup driver of its handlers, changed in place. Pure; every other byte stays.

Only lines that are there are changed. Whether they mean what they seem to mean is read from the whole file, parsed before and after.

Sources: containerd 1.6 to 2.x, docs/cri/config.md (versions 1 to 3 of the file), cmd/containerd/server/config (imports); runc's option
SystemdCgroup (core/runtime/opts, api/types/runc/options).
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from roles.engine.editing import FormatError
from roles.engine.harmless import one_line
from roles.engine.kubelet.runtime import CGROUPFS, SYSTEMD

# The plugin of the CRI by the version of the file.
_PLUGINS: Final = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_RUNC: Final = "io.containerd.runc."
_OPTION: Final = "SystemdCgroup"
_LINE: Final = re.compile(rb"^([ \t]*SystemdCgroup[ \t]*=[ \t]*)(true|false)(?=[ \t]*(?:#[^\n]*)?\r?$)", re.MULTILINE)
#: containerd's own default (2.2 and later); its files are looked at for the same option.
_DROPINS: Final = "/etc/containerd/conf.d/*.toml"


def drivers(data: bytes) -> dict[str, str]:
    """The driver of each handler that starts runc, by the file alone. Raises FormatError if it cannot be parsed."""
    return {name: SYSTEMD if options.get(_OPTION) is True else CGROUPFS for name, options in _handlers(_parsed(data))}


def with_driver(data: bytes, driver: str) -> bytes:
    """The file with this driver for every handler that starts runc. Raises FormatError if that is more than to change the value of lines
    that are there, or if the file imports others."""
    value = b"true" if driver == SYSTEMD else b"false"
    before = _parsed(data)
    if others := [name for name in before.get("imports") or () if name != _DROPINS]:
        raise FormatError(f"it imports other files ({one_line(', '.join(map(str, others)))})")
    changed = _LINE.sub(lambda found: found[1] + value, data)
    wanted = copy.deepcopy(before)
    for name, options in _handlers(wanted):
        if _OPTION not in options:
            raise FormatError(f"the options of the handler {one_line(name)} have no line {_OPTION} = true or false")
        options[_OPTION] = driver == SYSTEMD
    if _parsed(changed) != wanted:
        raise FormatError(f"its lines {_OPTION} are not one for each handler that starts runc")
    return changed


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it cannot be parsed as TOML: {one_line(str(error))}") from None


def _handlers(parsed: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the handlers that start runc."""
    for plugin in _PLUGINS:
        found = _table(_table(_table(_table(parsed, "plugins"), plugin), "containerd"), "runtimes")
        for name, handler in found.items():
            if isinstance(handler, dict) and str(handler.get("runtime_type") or "").startswith(_RUNC):
                yield name, _table(handler, "options")


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}
