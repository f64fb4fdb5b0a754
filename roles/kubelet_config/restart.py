"""What a restart of a kubelet brings beside the change that it is for. One rule, for all deploys that restart a kubelet.

What its files say otherwise than the process runs with comes with the restart: the plan says so, as a warning, and looks ahead with it.
Refused is what cannot be foreseen or proven: a setting that a restart alone does not rightly change, and pods that would have to go
without consent. What would keep the kubelet from starting is refused by its own binary, which is shown all of its files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roles.engine.kubelet import Pending, pending_settings, schema
from roles.engine.transaction import Refusal
from roles.kubelet_config.state import KubeletState

# A setting's parts: its field, dots between its parts, and the key where it is an entry of a map.
Named = Collection[tuple[str, ...]]


def brought(state: KubeletState) -> tuple[Pending, ...]:
    """What a restart of this kubelet brings by itself. Raises Refusal as `check` does."""
    found = tuple(pending_settings(state.kubelet, state.configuration))
    check(state, found)
    return found


def check(state: KubeletState, found: Sequence[Pending]) -> None:
    """Raises Refusal where a restart alone does not rightly change one of the settings."""
    names = [one.name for one in found]
    after = with_brought(state, found).configuration
    refused = [more for both in (state.configuration, after) for more in schema.needs_more(both, names) if more.refused]
    if refused:
        more = next(iter(refused))
        raise refusal(state, found, f"{more.path}: {more.reason}", more.way_out)


def refusal(state: KubeletState, found: Sequence[Pending], why: str, way_out: str) -> Refusal:
    """Why a kubelet is not restarted with what its files say."""
    edited = f"the restart would bring what its files say since the kubelet started ({'; '.join(map(str, found))})"
    return Refusal(state.host, f"{edited}, and {why}", f"{way_out}, or put the file back" if way_out else "put the file back")


def with_brought(state: KubeletState, found: Sequence[Pending]) -> KubeletState:
    """The node as it would be after a restart."""
    return replace(state, configuration=put(state.configuration, {one.name: one.brought for one in found}))


def put(configuration: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with fields set, dots between their parts; None takes one out."""
    made = dict(configuration)
    for name, value in fields.items():
        inner = made
        *parents, last = name.split(".")
        for part in parents:
            inner[part] = dict(inner.get(part) or {})
            inner = inner[part]
        inner.pop(last, None)
        if value is not None:
            inner[last] = value
    return made


def warnings(found: Sequence[Pending], named: Named = ()) -> list[str]:
    """What to say of it; not what the change itself names."""
    return [f"a restart also brings: {one}" for one in found if not named_by(one, named)]


def named_by(one: Pending, named: Named) -> bool:
    """True where the change itself names all that differs."""
    path = tuple(one.name.split("."))
    if path in named:
        return True
    if not isinstance(one.value, Mapping):
        return False
    now = one.now if isinstance(one.now, Mapping) else {}
    return all((*path, key) in named for key in one.value if one.value[key] != now.get(key))
