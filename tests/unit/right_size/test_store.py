"""Samples in the operator's state directory: whole or not at all, for two operators, and no name of the cluster is a path."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

import roles.right_size as right_size
from roles.right_size import CollectedUse, SampleHistory, SizedWorkload, Store, StoreError, store
from roles.right_size.samples import Kill, added
from tests.unit.right_size.world import DAY, MI, START, container, history, life, reads

WEB = SizedWorkload("Deployment", "shop", "web")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Store.of("11111111-2222-3333-4444-555555555555")


def test_what_is_kept_is_read_again(kept: Store, tmp_path: Path) -> None:
    throttled = [replace(one, cpu_limit=100 if one.at < START + 300 else 200) for one in reads(600, 5, periods=100, throttled=40)]
    found = history(life(throttled), kills=[Kill("a" * 64, START, 64 * MI, 5.0)])
    assert found.spans[0].stopped == (100, 0.4)
    assert kept.read(WEB) == {}
    kept.update(WEB, lambda before: {**before, "app": found})
    again = kept.read(WEB)["app"]
    assert again == found
    path = kept.path(WEB)
    assert tmp_path / "daytwo/use" in path.parents
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.stat().st_size < 20_000


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "x" * 300, "\n", "web\0"])
def test_no_name_of_the_cluster_is_a_path(kept: Store, name: str) -> None:
    path = kept.path(SizedWorkload(name, name, name))
    assert path.parent == kept.folder and len(path.name) < 60
    assert path != kept.path(WEB)


def test_names_do_not_run_together(kept: Store) -> None:
    assert kept.path(SizedWorkload("A", "b", "cd")) != kept.path(SizedWorkload("A", "bc", "d"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "workload": {"kind": "x"}, "containers": {}}', "[" * 9999]
)
def test_a_damaged_file_is_an_error_and_stays(kept: Store, text: str) -> None:
    kept.update(WEB, lambda _: {})
    kept.path(WEB).write_text(text)
    with pytest.raises(StoreError, match=kept.path(WEB).name):
        kept.update(WEB, lambda before: before)
    assert kept.path(WEB).read_text() == text


def test_one_of_a_newer_daytwo_is_left_alone(kept: Store) -> None:
    kept.update(WEB, lambda _: {"app": history(life(reads(20, 5)))})
    found = json.loads(kept.path(WEB).read_text())
    kept.path(WEB).write_text(json.dumps({**found, "format": store.FORMAT + 1}))
    with pytest.raises(StoreError, match="newer daytwo"):
        kept.read(WEB)


def test_values_that_are_not_numbers_are_an_error(kept: Store) -> None:
    kept.update(WEB, lambda _: {"app": history(life(reads(20, 5)))})
    found = json.loads(kept.path(WEB).read_text())
    found["containers"]["app"]["spans"][0]["last"]["peak"] = "x; rm"
    kept.path(WEB).write_text(json.dumps(found))
    with pytest.raises(StoreError, match="move the file away"):
        kept.read(WEB)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("place", ["first", "reads", "point", "peak", "highest"])
def test_numbers_that_daytwo_does_not_write_are_an_error(kept: Store, place: str, number: str) -> None:
    kept.update(WEB, lambda _: {"app": history(life(reads(20, 5)))})
    found = json.loads(kept.path(WEB).read_text())
    span = found["containers"]["app"]["spans"][0]
    match place:
        case "point":
            span["points"][0][1] = "HERE"
        case "peak":
            span["last"]["peak"] = "HERE"
        case _:
            span[place] = "HERE"
    kept.path(WEB).write_text(json.dumps(found).replace('"HERE"', number))
    with pytest.raises(StoreError, match="move the file away"):
        kept.read(WEB)


def test_samples_of_the_future_stay_and_are_named(kept: Store) -> None:
    kept.update(WEB, lambda _: {"app": history(life(reads(20, 5)))})
    before = kept.path(WEB).read_bytes()
    with pytest.raises(StoreError, match="in the future") as error:
        kept.update(WEB, lambda known: {"app": added(known["app"], [], [], START - 99 * DAY)})
    assert str(kept.path(WEB)) in str(error.value) and kept.path(WEB).read_bytes() == before


def test_a_failed_change_leaves_the_file(kept: Store) -> None:
    kept.update(WEB, lambda _: {"app": history(life(reads(20, 5)))})
    before = kept.path(WEB).read_bytes()

    def fails(_: Mapping[str, SampleHistory]) -> Mapping[str, SampleHistory]:
        raise ValueError

    with pytest.raises(ValueError):
        kept.update(WEB, fails)
    assert kept.path(WEB).read_bytes() == before


def _add(number: int, turns: int) -> None:
    for turn in range(turns):
        mine = life(reads(10, 5, begun=START + turn), f"{number:032x}{turn:032x}")
        Store.of("c").update(WEB, lambda before, mine=mine: {"app": added(before.get("app", SampleHistory()), [mine], [], START)})  # type: ignore[misc]


def test_two_operators_lose_nothing(kept: Store) -> None:
    context = get_context("fork")
    processes = [context.Process(target=_add, args=(number, 8)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(Store.of("c").read(WEB)["app"].spans) == 16


def test_a_lock_that_is_held_is_not_waited_for_forever(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.3)
    kept.update(WEB, lambda _: {})
    with (kept.folder / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another run has held it"):
            kept.update(WEB, lambda _: {})


def test_a_lock_that_is_held_is_waited_for_once(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.3)
    ones = [replace(container(f"w{number}"), id=f"{number:064x}") for number in range(9)]
    seen = CollectedUse("11111111-2222-3333-4444-555555555555", ones, ones, {})
    kept.update(WEB, lambda _: {})
    with (kept.folder / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        found = right_size._kept(seen)
    [problem] = seen.problems
    assert "another run has held it" in problem and "only this run's own reads count" in problem
    assert set(found) == {one.workload for one in ones}


def test_a_directory_that_cannot_be_written_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="XDG_STATE_HOME"):
        Store.of("c").update(WEB, lambda _: {})


def test_workloads_that_nobody_has_seen_are_forgotten(kept: Store) -> None:
    old = SizedWorkload("Job", "ci", "build-1")
    for workload in (WEB, old):
        kept.update(workload, lambda _: {})
    os.utime(kept.path(old), (START, START))
    now = kept.path(WEB).stat().st_mtime
    kept.forget(now)
    assert kept.path(WEB).exists() and not kept.path(old).exists()
    kept.forget(now + 31 * DAY)
    assert not kept.path(WEB).exists()
