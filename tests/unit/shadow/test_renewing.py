"""A shadow control plane is kept for all questions of a run: it follows the cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.shadow import ShadowControlPlane
from roles.engine.shadow.filling import contents

NAMES = st.sampled_from(["a", "b", "c", "d"])
NODES = st.sampled_from(["", "w1", "w2"])


class Stored:
    """What etcd holds, and in which order it was written."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.there, self.writes = dict(first), list[tuple[str, bool]]()

    def write(self, changes: dict[str, Any]) -> None:
        for key, item in changes.items():
            self.writes.append((key, item is None))
            self.there = {one: value for one, value in {**self.there, key: item}.items() if value is not None}


def objects(pods: dict[str, str], cordoned: set[str]) -> dict[str, list[dict[str, Any]]]:
    nodes = [{"metadata": {"name": name, "uid": name}, "spec": {"unschedulable": name in cordoned or None}} for name in ("w1", "w2")]
    made = [
        {
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"nodeName": node, "schedulerName": "default-scheduler", "containers": [{"name": "c"}]},
        }
        for name, node in pods.items()
    ]
    return {"Node": nodes, "Pod": made}


@settings(max_examples=60)
@given(st.lists(st.tuples(st.dictionaries(NAMES, NODES), st.sets(st.sampled_from(["w1", "w2"]))), min_size=2, max_size=4))
def test_it_holds_what_the_cluster_has_now_and_writes_only_what_has_changed(seen: list[tuple[dict[str, str], set[str]]]) -> None:
    first, *later = (objects(*one) for one in seen)
    stored = Stored(contents(first))
    programs: Any = SimpleNamespace(check=lambda: None)
    store: Any = stored
    shadow = ShadowControlPlane(programs, store, contents(first), ["default-scheduler"])
    for one in later:
        before, stored.writes = stored.there, []
        shadow.renew(one)
        assert stored.there == contents(one)
        assert {key for key, _ in stored.writes} == {key for key in {*before, *stored.there} if before.get(key) != stored.there.get(key)}
        gone = [is_gone for _, is_gone in stored.writes]
        assert gone == sorted(gone, reverse=True), "what needs less room comes first"
