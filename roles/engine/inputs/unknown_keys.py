"""Finds the keys of a host's data that no deploy reads, and those of --data that this deploy does not read: such a key would silently
change nothing, or leave a run wider than it was meant. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.inputs.nearest import did_you_mean, listing
from roles.engine.inputs.values import names

OWN_PREFIX = "x_"
# Similarity of two names (difflib's ratio) above which one is a typo of the other, and above which it is worth a question.
TYPO, NEAR = 0.8, 0.6
WAY_OUT = (
    f"docs/reference/data.md has all keys; your own must begin with {OWN_PREFIX} or _, or be listed in own_keys (own_keys=NAME,PREFIX_*)"
)


def unknown(given: Iterable[str], known: Collection[str], pyinfra: Collection[str], own: Iterable[str] = ()) -> dict[str, str]:
    """Each key of `given` that no deploy reads, with its message.

    `known` are daytwo's, `pyinfra` those of pyinfra and its connectors, `own` the patterns of `own_keys`. A key that begins with `x_` or
    `_`, or that matches `own`, is the operator's own. But a typo of a known key (`_sduo`, `feature_gate` under a pattern) is not, unless
    `own` has its whole name.
    """
    own = tuple(own)
    found = {}
    for key in sorted(set(given) - set(known) - set(pyinfra) - set(own)):
        theirs = key.startswith((OWN_PREFIX, "_")) or any(fnmatchcase(key, pattern) for pattern in own)
        meant = _meant(key, [*known, *pyinfra], TYPO if theirs else NEAR)
        if theirs and (meant is None or key.startswith(OWN_PREFIX)):
            continue
        found[key] = f"{key} is not a key of daytwo's data; " + (f"did you mean {meant}?" if meant else "no deploy reads it")
    return found


def as_pair(key: str, value: Any, of: str, known: Collection[str]) -> str:
    """The message for an unknown key of --data that is the name in a pair of the key `of`, such as a gate; "" if it may be a typo of a
    known key. A name with another letter than those of daytwo's keys is none of these, unless it is very similar."""
    theirs = re.search("[^a-z_]", key)
    if _meant(key, [*known], TYPO if theirs else NEAR):
        return ""
    # A text may be secret.
    shown = str(value).lower() if isinstance(value, bool | int) else "..."
    return f"{key} is not a key of daytwo's data; did you mean {of}={key}={shown}?"


# Keys that choose nodes, now and before.
_OF_NODES = ("nodes", "only")
#: The deploys that work on objects of the cluster and not on nodes, and the keys by which each chooses objects.
OF_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "autoscaler_status": ("namespaces",),
    "autoscalers": ("only_objects",),
    "disruption_budgets": ("only_objects",),
    "metrics_server": (),
    "priority_classes": ("only_objects",),
    "resize": ("workload", "selector"),
    "resize_drift": (),
    "restart": ("restart", "workload_selector"),
    "right_size": ("only_objects", "namespaces"),
}
# Keys that choose a part of a run: their names differ between deploys, and are not similar.
_CHOOSING = ("only", "only_objects", "nodes", "namespaces", "workload", "deployment")


#: Keys of a deploy that have another name now, since another deploy means something else by the old one.
_RENAMED = {
    ("autoscalers", "only"): "only_objects",
    ("disruption_budgets", "only"): "only_objects",
    ("priority_classes", "only"): "only_objects",
    ("right_size", "only"): "only_objects",
    ("right_size", "soak"): "watch_resized",
    ("reboot", "force"): "allow_unneeded",
}


def chose_before(deploy: str) -> dict[str, str]:
    """The old names under which data of the inventory chose a part of this deploy's work, and their names now."""
    return {key: now for (of, key), now in _RENAMED.items() if of == deploy and key in _CHOOSING}


def not_read(given: Mapping[str, Any], deploy: str, readers: Mapping[str, Collection[str]], every: str) -> list[str]:
    """A sentence for each key of `given`, which some deploys read, but not `deploy`. `every` stands for all deploys."""
    read = {key for key, deploys in readers.items() if deploy in deploys or every in deploys}
    return [_not_read(key, given[key], deploy, read, readers[key]) for key in sorted(given.keys() & readers.keys() - read)]


def _not_read(key: str, value: Any, deploy: str, read: Collection[str], theirs: Collection[str]) -> str:
    if key in _OF_NODES and (deploy, key) not in _RENAMED:
        return f"--data {key}: {deploy}.py does not read it; {_instead(value, deploy, read)}"
    if (now := _RENAMED.get((deploy, key))) is not None:
        return f"--data {key}: {deploy}.py does not read it: there its name is {now}"
    choosing = [name for name in _CHOOSING if name in read] if key in _CHOOSING else []
    near = did_you_mean(key, read) or (f", did you mean {' or '.join(map(repr, choosing))}?" if choosing else ";")
    others = ", ".join(sorted(theirs))
    return f"--data {key}: {deploy}.py does not read it (but {others}){near} it reads: {listing(read, len(read))}"


def _instead(value: Any, deploy: str, read: Collection[str]) -> str:
    """How to choose nodes, or objects, for a deploy that reads no such key."""
    try:
        hosts = ",".join(names(value) or ())
    except ValueError:
        hosts = ""
    hosts = one_line(hosts) or "HOST,HOST"
    if "nodes" in read:
        return f"there its name is nodes: write --data nodes={hosts}"
    if deploy not in OF_OBJECTS:
        return f"choose its hosts with --limit: write --limit {hosts}"
    return f"it works on objects of the cluster, whichever nodes have their pods: {chosen_by(deploy)}"


def chosen_by(deploy: str) -> str:
    """How to choose the objects of a deploy that works on objects."""
    keys = OF_OBJECTS[deploy]
    return f"choose them with {' or '.join(f'{key}=' for key in keys)}" if keys else "name no host"


def _meant(key: str, candidates: list[str], cutoff: float) -> str | None:
    plain = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter.group()}", key).lower().replace("-", "_")
    near = difflib.get_close_matches(plain, candidates, 1, cutoff)
    return near[0] if near else None
