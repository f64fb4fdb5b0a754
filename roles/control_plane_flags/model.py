"""The desired flags of control-plane components, and the files that they name. Typed; rejects invalid data."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from roles.control_plane_flags.reserved import reserved
from roles.engine.bounds import Twice, once
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import FlagValues
from roles.engine.inputs import LIST_OR_TEXT, MAP_OR_TEXT, Data, Frozen, OfNodes, names, read_host

ABSENT = "absent"
_KEYS = ("control_plane_flags", "control_plane_files")
_ALIASES = {name.removeprefix("kube-"): name for name in COMPONENTS}
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_PATH = re.compile(r"(/[A-Za-z0-9._-]+){2,}\Z")
_MODE = re.compile(r"0?[0-7]{3}\Z")
_OWNER = re.compile(r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})\Z")
# The largest file that daytwo reads from a node, as a survey reads it.
_MOST_BYTES = 512 * 1024
_FIELDS = ("content", "file", "mode", "owner", "component", "secret")
# Flags that are not for a component that should keep running, and one that has its own deploy.
_REFUSED = {
    "feature-gates": "it has its own deploy, which knows the gates and their order: deploys/feature_gates.py",
    "version": "with it the component prints its version and ends",
    "help": "with it the component prints its flags and ends",
    "write-config-to": "with it the scheduler writes its configuration and ends",
}
# Gone after a restart.
_FOLDERS = ("/run", "/tmp")


class DesiredFile(Frozen):
    """A file on the node: its content; mode and owner (UID:GID) of a new file; the component that reads it, if no flag names it; whether
    its content is secret (None: if a flag says so)."""

    content: bytes
    mode: int | None = None
    owner: str | None = None
    component: str | None = None
    secret: bool | None = None


def _flags(value: Any) -> dict[str, dict[str, FlagValues]]:
    if isinstance(value, str):
        value = _one(value)
    if not isinstance(value, Mapping):
        raise ValueError("control_plane_flags is not a map of components; write {COMPONENT: {FLAG: VALUE}}, or COMPONENT:FLAG=VALUE")
    found: dict[str, dict[str, FlagValues]] = {}
    for component, wanted in value.items():
        name = _component("control_plane_flags", component)
        if not isinstance(wanted, Mapping) or not wanted:
            raise ValueError(f"control_plane_flags: {component} has no flags; write {{FLAG: VALUE}}")
        try:
            pairs = [(_flag(name, flag), _values(f"{name} --{flag}", one)) for flag, one in wanted.items()]
            found[name] = once([*found.get(name, {}).items(), *pairs])
        except Twice as error:
            raise ValueError(f"control_plane_flags: {name}: {error}; keep one") from None
    return found


def _one(text: str) -> dict[str, dict[str, str]]:
    """`COMPONENT:FLAG=VALUE`, as --data has it."""
    component, colon, rest = text.partition(":")
    flag, equals, value = rest.partition("=")
    if not colon or not equals or _SEVERAL.search(value):
        raise ValueError(f"control_plane_flags={text}: write COMPONENT:FLAG=VALUE, or JSON for several flags")
    return {component.strip(): {flag.strip(): value}}


#: `COMPONENT:FLAG=` once more, behind a comma: no value of a flag has this form.
_SEVERAL = re.compile(rf",\s*(?:{'|'.join((*COMPONENTS, *_ALIASES))}):[\w-]+=")


def _component(key: str, name: Any) -> str:
    found = _ALIASES.get(str(name), str(name))
    if found in COMPONENTS:
        return found
    if found == "etcd":
        raise ValueError(f"{key}: daytwo does not change etcd's flags: its data and its members depend on them")
    raise ValueError(f"{key}: {name!r} is not one of {', '.join(COMPONENTS)}")


def _flag(component: str, name: Any) -> str:
    found = str(name).removeprefix("--").replace("_", "-")
    if not _NAME.match(found):
        raise ValueError(f"control_plane_flags: {component}: {name!r} is not the name of a flag")
    if found in _REFUSED:
        raise ValueError(f"control_plane_flags: {component} --{found}: {_REFUSED[found]}")
    return found


def _values(where: str, value: Any) -> FlagValues:
    if value == ABSENT:
        return None
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise ValueError(f"control_plane_flags: {where} has an empty list; write its values, or `absent`")
    return tuple(_value(where, item) for item in items)


def _value(where: str, value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value is None:
        raise ValueError(f"control_plane_flags: {where} is null, which is no value of a flag; write `{ABSENT}` to remove the flag")
    if not isinstance(value, str | bool | int | float):
        raise ValueError(f"control_plane_flags: {where}={value!r} is not a value of a flag; write text, a number, true, false or a list")
    if not text.isprintable():
        raise ValueError(f"control_plane_flags: {where} has a character that is not printable, or a line end")
    if "$(" in text:
        # pkg/kubelet/container/helpers.go, ExpandContainerCommandAndArgs.
        raise ValueError(f"control_plane_flags: {where}={text}: the kubelet would replace $(...) in it; write $$(...) for a literal one")
    return text


def _files(value: Any) -> dict[str, DesiredFile | None]:
    if not isinstance(value, Mapping):
        raise ValueError("control_plane_files is not a map; write {PATH: {content: TEXT, mode: '0600'}}, or {PATH: absent}")
    return {_path(path): None if wanted == ABSENT else _file(str(path), wanted) for path, wanted in value.items()}


def _path(path: Any) -> str:
    text = str(path)
    if not _PATH.match(text) or posixpath.normpath(text) != text:
        raise ValueError(
            f"control_plane_files: {text}: write the whole path of a file: /etc/kubernetes/NAME, of letters, digits, . _ and -"
        )
    if why := reserved(text):
        raise ValueError(f"control_plane_files: {text}: {why}; choose another place, such as /etc/kubernetes/daytwo")
    if above := next((folder for folder in _FOLDERS if text.startswith(f"{folder}/")), None):
        raise ValueError(f"control_plane_files: {text}: {above} belongs to other programs, and is gone after a restart; choose another")
    return text


def _file(path: str, value: Any) -> DesiredFile:
    where = f"control_plane_files: {path}"
    if not isinstance(value, Mapping) or ("content" in value) == ("file" in value) or value.keys() - set(_FIELDS):
        raise ValueError(f"{where}: write {{content: TEXT}} or {{file: PATH HERE}}, and of {', '.join(_FIELDS[2:])} what it needs")
    mode = value.get("mode")
    # A number is not clear: 0o640 of Python is 416 as text.
    if "mode" in value and not (isinstance(mode, str) and _MODE.match(mode)):
        raise ValueError(f"{where}: mode {value['mode']!r} is not three octal digits, as text: '0600'")
    owner = str(value["owner"]) if "owner" in value else None
    if owner is not None and not _OWNER.match(owner):
        raise ValueError(f"{where}: owner {value['owner']!r} is not UID:GID in numbers: '0:0'")
    content = _content(where, value)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{where}: it has {len(content)} bytes; daytwo writes up to {_MOST_BYTES}")
    component = _component(where, value["component"]) if "component" in value else None
    secret = value.get("secret")
    if not isinstance(secret, bool | None):
        raise ValueError(f"{where}: secret is {secret!r}; write true or false")
    return DesiredFile(content=content, mode=None if mode is None else int(mode, 8), owner=owner, component=component, secret=secret)


def _content(where: str, value: Mapping[str, Any]) -> bytes:
    if "content" in value:
        if not isinstance(value["content"], str):
            raise ValueError(f"{where}: content is not text; put it in quotes")
        return value["content"].encode()
    here = Path(str(value["file"])).expanduser()
    try:
        return here.read_bytes()
    except OSError as error:
        raise ValueError(f"{where}: {here} on this machine cannot be read: {error.strerror}; give a path from this directory") from None


class DesiredFlags(OfNodes):
    """The data keys that deploys/control_plane_flags.py reads for one host."""

    control_plane_flags: Annotated[
        dict[str, dict[str, FlagValues]],
        BeforeValidator(_flags),
        MAP_OR_TEXT,
        Field(
            description="by component, its flags: a value, a list for a flag that is given several times, or `absent` to remove it. A flag"
            " that is not named stays as it is",
            examples=[
                {"kube-controller-manager": {"horizontal-pod-autoscaler-downscale-stabilization": "2m"}},
                "kube-scheduler:v=4",
            ],
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    control_plane_files: Annotated[
        dict[str, DesiredFile | None],
        BeforeValidator(_files),
        WithJsonSchema({"type": "object"}),
        Field(
            description="files on control-plane nodes that flags name, by path: their `content`, or a `file` on this machine. A new file"
            " may have `mode` and `owner`, and `component` if no flag names it. `secret: true` hides the content; `absent` removes a file",
            examples=[{"/etc/kubernetes/audit-policy.yaml": {"content": "apiVersion: audit.k8s.io/v1\n...", "mode": "0600"}}],
        ),
    ] = {}  # noqa: RUF012 - pydantic copies it
    allow_flags: Annotated[
        tuple[str, ...],
        BeforeValidator(names),
        LIST_OR_TEXT,
        Field(
            description="consent: change these flags despite the danger that the plan names",
            examples=[["anonymous-auth"], "anonymous-auth,disable-admission-plugins"],
        ),
    ] = ()

    @property
    def data(self) -> dict[str, Any]:
        """As plain data, for the record of a run: it keeps only a checksum of this."""
        return self.model_dump()

    def of(self, component: str) -> dict[str, FlagValues]:
        """The desired flags of a component."""
        return self.control_plane_flags.get(component, {})


def read_flags(host: str, data: Data) -> DesiredFlags | None:
    """The desired flags and files of a host from its inventory data; None if it has none. Raises Refusal."""
    return read_host(host, data, DesiredFlags, _KEYS)
