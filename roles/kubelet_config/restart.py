"""What else a restart of a kubelet applies. One rule, for all deploys that restart a kubelet.

If the files differ from what the process runs with, the restart applies the difference: the plan warns, and includes it in its prediction.
The plan refuses what cannot be predicted or proven: a setting that needs more than a restart, and evictions without consent. The
kubelet's own binary validates all of its files, and refuses what would keep it from starting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from roles.engine.kubelet import KubeletState, drained, schema
from roles.engine.kubelet.pending import Pending, pending_settings, restarted
from roles.engine.transaction import Refusal

# The path of a setting: the parts of its field's name, and the key if it is an entry of a map.
Named = Collection[tuple[str, ...]]


def pending(state: KubeletState) -> tuple[Pending, ...]:
    """The settings that a restart of this kubelet changes by itself. Raises Refusal as `check` does."""
    found = tuple(pending_settings(state.kubelet, state.configuration))
    check(state, found)
    return found


def check(state: KubeletState, found: Sequence[Pending]) -> None:
    """Raises Refusal if one of the settings needs more than a restart."""
    if not found:
        return
    if more := next((one for one in schema.needs_more(one.name for one in found) if one.refused), None):
        raise refusal(state, found, f"{more.path}: {more.reason}", more.way_out)
    try:
        # Running containers keep their limit of swap, and all works: that is no reason.
        wanted = drained.needed(state.configuration, with_pending(state, found).configuration, swap_on=False)
    except ValueError as error:
        raise refusal(state, found, f"{error}; the kubelet would not start", "correct the value") from None
    if wanted is not None:
        paths = [f"{state.kubelet.root_directory}/{name}" for name in wanted.checkpoints]
        remove = f" remove {' and '.join(paths)}," if paths else ""
        raise refusal(state, found, "; ".join(wanted.why), f"drain the node, stop the kubelet,{remove} start it, uncordon the node")


def refusal(state: KubeletState, found: Sequence[Pending], why: str, way_out: str) -> Refusal:
    """Why the kubelet is not restarted with its present files."""
    edited = f"the restart would also apply changes to its files since the kubelet started ({'; '.join(map(str, found))})"
    return Refusal(state.host, f"{edited}, and {why}", f"{way_out}, or revert the file" if way_out else "revert the file")


def with_pending(state: KubeletState, found: Sequence[Pending]) -> KubeletState:
    """The node as it would be after a restart."""
    return replace(state, configuration=restarted(state.configuration, found))


def warnings(found: Sequence[Pending], named: Named = ()) -> list[str]:
    """A warning for each setting that the change itself does not name."""
    return [f"a restart also applies: {one}" for one in found if not named_by(one, named)]


def named_by(one: Pending, named: Named) -> bool:
    """True if the change itself names everything that differs."""
    path = tuple(one.name.split("."))
    if path in named:
        return True
    if not isinstance(one.value, Mapping):
        return False
    now = one.now if isinstance(one.now, Mapping) else {}
    return all((*path, key) in named for key in one.value if one.value[key] != now.get(key))
