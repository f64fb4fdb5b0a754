"""Whole objects: unchanged since the plan, removed and gone, reverted, whatever others do meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from roles.engine.object_changes import ChangedByOthers, Gone, NotDone, RevertFailed, Undone, WholeObject
from roles.engine.transaction import ChangedField

PATH = "/apis/x/v1/namespaces/shop/things/web"
SIZE = ("spec", "size")


def thing(size: int, uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": "shop", "uid": uid}, "spec": {"size": size}}


def values(found: Mapping[str, Any] | None) -> dict[tuple[str, ...], Any]:
    return {} if found is None else {SIZE: found["spec"]["size"]}


class Store:
    """A session with one object. `keeps`: what the API server makes of each write."""

    def __init__(self, there: dict[str, Any] | None, keeps: Callable[[dict[str, Any]], dict[str, Any]] = lambda one: one) -> None:
        self.there, self.keeps, self.applied = there, keeps, 0

    def fetch(self, path: str) -> dict[str, Any] | None:
        assert path == PATH
        return copy.deepcopy(self.there)

    def written(self, path: str, send: Callable[[Any], Any], done: Callable[[Any], bool]) -> Any:
        return send(self)

    def apply(self, path: str, manifest: dict[str, Any], *, force: bool) -> dict[str, Any]:
        assert force and path == PATH
        self.applied += 1
        self.there = self.keeps(copy.deepcopy(manifest))
        return self.there

    def deleted(self, path: str, item: dict[str, Any]) -> None:
        assert self.there is not None and item["metadata"]["uid"] == self.there["metadata"]["uid"]
        self.there = None


def whole(store: Store, before: dict[str, Any] | None) -> WholeObject:
    return WholeObject(store, PATH, before, values, "thing -n shop web")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (None, thing(1), "created it"),
        (thing(1), None, "deleted"),
        (thing(1), thing(1, "u2"), "deleted"),
        (thing(1), thing(2), "changed"),
    ],
)
def test_another_object_than_the_plans_is_not_written(before: Any, now: Any, words: str) -> None:
    store = Store(now)
    with pytest.raises(NotDone, match=words):
        whole(store, before).unchanged()
    if before is not None:
        with pytest.raises(NotDone, match=words):
            whole(store, before).remove()
    assert store.there == now


def test_the_plans_object_is_removed() -> None:
    store = Store(thing(1))
    assert whole(store, thing(1)).remove() == "read back: it is gone" and store.there is None


def reverted(store: Store, before: dict[str, Any] | None, written: dict[str, Any]) -> Exception:
    changed = [ChangedField(SIZE, values(before).get(SIZE), 5)]
    return whole(store, before).reverted(written, changed, lambda found: thing(values(before)[SIZE]), NotDone("not proven"))


@pytest.mark.parametrize(
    ("before", "now", "ended", "words", "after"),
    [
        (thing(1), thing(5), Undone, "reverted: read back", thing(1)),
        (None, thing(5), Undone, "created is removed", None),
        (thing(1), None, Gone, "deleted meanwhile", None),
        (thing(1), thing(5, "u2"), Gone, "deleted meanwhile", thing(5, "u2")),
        (thing(1), thing(7), ChangedByOthers, "left as it is", thing(7)),
    ],
)
def test_what_was_written_is_reverted_and_nothing_of_others(before: Any, now: Any, ended: type, words: str, after: Any) -> None:
    store = Store(now)
    error = reverted(store, before, thing(5))
    assert type(error) is ended and str(error).startswith("not proven; ") and words in str(error)
    assert store.there == after


def test_a_revert_that_does_not_hold_says_what_to_do_by_hand() -> None:
    store = Store(thing(5), keeps=lambda _: thing(5))
    error = reverted(store, thing(1), thing(5))
    assert type(error) is RevertFailed and store.applied == 1
    assert "kubectl get thing -n shop web -o yaml" in str(error) and "REPAIR BY HAND" in str(error)
