"""The command `daytwo`: what it makes of its words, and that pyinfra is all that it starts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from roles.cli import daytwo
from roles.engine.commands import TYPED, as_typed, command, inventories, to_type, typed, use_inventory, whole
from roles.engine.inputs import registry

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "deploys").glob("*.py"))


def said(*words: str) -> str:
    done = CliRunner().invoke(daytwo.main, words, prog_name="daytwo")
    assert done.exit_code == 0, done.output
    return done.output


def test_pyproject_installs_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"daytwo": "daytwo:main"}
    assert (ROOT / project["tool"]["setuptools"]["package-dir"][""] / "daytwo.py").exists()


def test_it_lists_every_deploy_and_whether_it_changes_something() -> None:
    shown = said()
    looks, _, changes = shown.partition("Look, change nothing:\n")[2].partition("Change:\n")
    reads_only = {name for one in registry.every_model() for name in one.deploys if one.changes == registry.Changes.NOTHING}
    writes = {name for one in registry.every_model() for name in one.deploys if one.changes > registry.Changes.NOTHING}
    writes.add("node_autoscaler")  # by the deploys that it starts
    for name in NAMES:
        there = changes if name in writes else looks
        assert f"  {name} " in there, name
    assert len(reads_only | writes) >= len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_has_every_key_that_the_deploy_reads(name: str) -> None:
    shown, short = said(name, "--help-all"), said(name, "--help")
    keys = {key for key, deploys in registry.readers().items() if {name, registry.EVERY_DEPLOY} & deploys}
    own = {key.name for one in registry.every_model() if {name, registry.EVERY_DEPLOY} & {*one.deploys} for key in registry.of(one)}
    assert keys >= own and [key for key in own if f"  {key}" not in shown] == []
    assert [key for key in own if not re.search(rf"\b{key}\b", short)] == [], "the short help has the names of all keys"
    assert len(short.splitlines()) <= len(shown.splitlines())


@pytest.mark.parametrize(
    ("deploy", "words", "found"),
    [
        ("drain", ["w1", "w2"], ["--data", "nodes=w1,w2"]),
        ("rollback", ["r1"], ["--data", "run=r1"]),
        (
            "feature_gates",
            ["w1", "workers", "feature_gates=A=true"],
            ["--data", "feature_gates=A=true", "--limit", "w1", "--limit", "workers"],
        ),
        ("status", [], []),
    ],
)
def test_words_are_hosts_or_keys(deploy: str, words: list[str], found: list[str]) -> None:
    assert daytwo.arguments(deploy, words) == found


@pytest.mark.parametrize(
    ("deploy", "usage", "meaning"),
    [
        ("drain", "[NODE...] [KEY=VALUE...]", "NODE is a node: nodes=NODE,NODE."),
        ("rollback", "[RUN] [KEY=VALUE...]", "RUN is the name of a run: run=RUN."),
        ("status", "[HOST...] [KEY=VALUE...]", "HOST is a host, a group or a pattern of the inventory: --limit HOST."),
        ("autoscaler_status", "[HOST...] [KEY=VALUE...]", "choose them with namespaces=."),
    ],
)
def test_help_says_what_a_word_is(deploy: str, usage: str, meaning: str) -> None:
    shown = said(deploy, "--help")
    assert usage in shown and meaning in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_help_is_what_the_deploy_reads(name: str) -> None:
    text = daytwo.example(name)
    assert f"Example: {text}\n" in said(name, "--help") if text else registry.main_key(name) == "" == text
    given = daytwo.arguments(name, [word for word in shlex.split(text)[2:] if word != "--dry"])
    keys = [word.partition("=")[0] for word in given[1::2]]
    assert {*given[::2]} <= {"--data"} and {*keys} <= {*daytwo.keys_of(name)} and (len(keys) == 1) is bool(text)


def test_most_deploys_that_change_something_have_an_example() -> None:
    assert {"feature_gates", "kubelet_config", "eviction", "drain", "rollback", "autoscalers"} <= {
        name for name in NAMES if daytwo.example(name)
    }


@pytest.mark.parametrize(
    ("name", "answer"),
    [("feature_gate", "did you mean 'feature_gates'?"), ("drian", "did you mean 'drain'?"), ("xyzzy", "; `daytwo` lists all deploys")],
)
def test_a_deploy_that_is_not_there_has_a_near_one(name: str, answer: str) -> None:
    done = CliRunner().invoke(daytwo.main, [name, "--help"], prog_name="daytwo")
    assert done.exit_code == 2 and f"there is no deploy {name!r}" in done.output and answer in done.output


def test_inventories_are_those_of_this_folder_and_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").touch()
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories/mine.py").touch()
    assert inventories() == ["inventories/mine.py", *(str(path) for path in sorted((ROOT / "inventories").glob("*.py")))]
    monkeypatch.chdir(ROOT)
    assert "inventories/prod.py" in inventories()


def test_the_inventory_is_named_or_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daytwo, "HOME", tmp_path / "checkout")
    monkeypatch.delenv(daytwo.INVENTORY, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match="no inventory: name one with -i"):
        daytwo.inventory(None)
    (tmp_path / "inventories").mkdir()
    mine, other = tmp_path / "inventories/mine.py", tmp_path / "other.py"
    for path in (mine, other):
        path.touch()
    assert daytwo.inventory(None) == str(mine)
    monkeypatch.setenv(daytwo.INVENTORY, "other.py")
    assert daytwo.inventory(None) == str(other)
    assert daytwo.inventory("w1,w2") == "w1,w2"


def test_it_becomes_pyinfra_in_any_folder(tmp_path: Path) -> None:
    """What follows, and the exit status, are those of the deploy."""
    (tmp_path / "hosts.py").write_text('control_plane = ["@fake/cp1"]\n')
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import daytwo; daytwo.main(prog_name='daytwo')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "roles/cli"), "-i", "hosts.py", "drain", "--data", "nodse=w1", "-y"],
        cwd=tmp_path,
        env={**os.environ, "PYINFRA_PROGRESS": "off", "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "did you mean nodes?" in done.stderr, done.stderr
    assert done.stdout == ""


def test_help_needs_nothing_of_the_folder_that_it_is_started_in(tmp_path: Path) -> None:
    """As the installed command: only the folder of daytwo.py is on its path."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import daytwo; daytwo.main(prog_name='daytwo')"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [sys.executable, "-c", code, str(ROOT / "roles/cli"), "drain", "--help"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "  drain_timeout" in done.stdout, done.stderr


RECORDED = "pyinfra --config /srv/config.py /srv/inventories/a.py /srv/deploys/x.py --data b=c --data d=e -y"


@pytest.mark.parametrize(
    ("text", "daytwo", "pyinfra"),
    [
        ("allow it with --data allow_x=true", "allow it with allow_x=true", "allow it with --data allow_x=true"),
        ("w1: --data: x is", "w1: the command line: x is", "w1: --data: x is"),
        ("--data 'a={\"b\": 1}'", "'a={\"b\": 1}'", "--data 'a={\"b\": 1}'"),
        (
            "by pyinfra a.py deploys/x.py -y --data b=c",
            "by pyinfra a.py deploys/x.py -y --data b=c",
            "by pyinfra a.py deploys/x.py -y --data b=c",
        ),
        ("--data-dir x", "--data-dir x", "--data-dir x"),
        (RECORDED, RECORDED, RECORDED),
    ],
)
def test_keys_in_hints_are_as_they_were_typed(text: str, daytwo: str, pyinfra: str) -> None:
    try:
        use_inventory("a.py", "daytwo")
        assert (whole(text), as_typed(text)) == (daytwo, daytwo)
        use_inventory("a.py")
        assert (whole(text), as_typed(text)) == (pyinfra, pyinfra)
    finally:
        use_inventory("INVENTORY")


def test_a_record_has_the_command_as_it_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/venv/bin/pyinfra", "/srv/a.py", "/srv/deploys/drain.py", "--data", "nodes=w1"])
    monkeypatch.delenv(TYPED, raising=False)
    assert typed() == ["pyinfra", "/srv/a.py", "/srv/deploys/drain.py", "--data", "nodes=w1"]
    for name, value in to_type(["daytwo", "drain", "w 1"]).items():
        monkeypatch.setenv(name, value)
    assert typed() == ["daytwo", "drain", "w 1"]


def test_commands_in_hints_are_as_the_operator_has_begun() -> None:
    try:
        use_inventory("inventories/prod.py")
        assert command("uncordon", nodes="w1") == "pyinfra inventories/prod.py deploys/uncordon.py --data nodes=w1"
        use_inventory("/x/prod.py", "daytwo -i prod.py")
        assert command("uncordon", nodes="a b") == "daytwo -i prod.py uncordon 'nodes=a b'"
    finally:
        use_inventory("INVENTORY")


@pytest.mark.parametrize(
    ("text", "typed", "started"),
    [
        ("deploys/changes.py lists them", "pyinfra my.py deploys/changes.py lists them", "daytwo changes lists them"),
        ("(deploys/a.py --data b=c); d", "(pyinfra my.py deploys/a.py --data b=c); d", "(daytwo a b=c); d"),
        ("deploys/drain.py --dry shows", "pyinfra my.py deploys/drain.py --dry shows", "daytwo drain --dry shows"),
        ("pyinfra prod.py deploys/a.py -y", "pyinfra prod.py deploys/a.py -y", "pyinfra prod.py deploys/a.py -y"),
        ("/srv/deploys/a.py, mydeploys/a.py", "/srv/deploys/a.py, mydeploys/a.py", "/srv/deploys/a.py, mydeploys/a.py"),
    ],
)
def test_a_deploy_in_a_sentence_becomes_a_command(text: str, typed: str, started: str) -> None:
    try:
        use_inventory("my.py")
        assert whole(text) == typed == whole(whole(text))
        use_inventory("my.py", "daytwo")
        assert whole(text) == started
    finally:
        use_inventory("INVENTORY")
