"""Names that match nothing, and what folds: a mistake never makes a run wider, and an outcome that differs has a line of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from roles.drain import chosen_nodes
from roles.engine import bridge, folding
from roles.engine.api import Forbidden
from roles.engine.inputs import names, registry
from roles.engine.inputs.unknown_keys import OF_OBJECTS, not_read
from roles.engine.node_changes import capability, node_report
from roles.engine.object_runs import check_namespaces
from roles.engine.runs import end_unproven, no_such_host
from roles.engine.runs.deploying import UNPROVEN
from roles.engine.transaction import Change, FileEdit

DEPLOYS = sorted(path.stem for path in (Path(__file__).resolve().parents[3] / "deploys").glob("*.py"))


@pytest.fixture
def many() -> Iterator[None]:
    """A run of many hosts."""
    folding.set_run(12, ())
    yield
    folding.set_run(0, ())


def test_a_key_of_another_deploy_has_the_nearest_one_and_the_list() -> None:
    readers = {"namespaces": {"right_size"}, "only_objects": {"autoscalers"}, "force": {"drain", "autoscalers"}, "verbose": {"all"}}
    assert not_read(dict.fromkeys(["only_objects", "force", "verbose", "mine"], "x"), "autoscalers", readers, "all") == []
    (said,) = not_read({"namespaces": "shop"}, "autoscalers", readers, "all")
    assert said == (
        "--data namespaces: autoscalers.py does not read it (but right_size), did you mean 'only_objects'?"
        " it reads: force, only_objects, verbose"
    )


@pytest.mark.parametrize("key", ["nodes", "only"])
@pytest.mark.parametrize("deploy", DEPLOYS)
def test_each_deploy_reads_nodes_or_says_how_to_choose(deploy: str, key: str) -> None:
    readers = registry.readers()
    said = not_read({key: "w1,w2"}, deploy, readers, registry.EVERY_DEPLOY)
    if deploy in readers[key]:
        assert said == []
        return
    way_out = {
        (True, False): "there its name is nodes: write --data nodes=w1,w2",
        (False, False): "choose its hosts with --limit: write --limit w1,w2",
        (False, True): "it works on objects of the cluster, whichever nodes have their pods: ",
    }[deploy in readers["nodes"], deploy in OF_OBJECTS]
    assert len(said) == 1 and (way_out in said[0] or "there its name is only_objects" in said[0])
    assert [name for name in OF_OBJECTS.get(deploy, ()) if deploy not in readers[name]] == []


def test_a_key_that_has_another_name_now() -> None:
    readers = {"only": {"drain"}, "only_objects": {"autoscalers"}}
    assert not_read({"only": "x"}, "autoscalers", readers, "all") == [
        "--data only: autoscalers.py does not read it: there its name is only_objects"
    ]


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_a_text_that_names_nothing_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="names nothing"):
        names(text)
    assert names([]) == () and names(None) is None


def test_hosts_that_are_not_there() -> None:
    remotes: list[Any] = [SimpleNamespace(name=name, groups=["workers", "w1"]) for name in ("w1", "w2")]
    assert no_such_host(remotes, None) == no_such_host(remotes, ("w1",)) == []
    assert no_such_host(remotes, ("w1", "db")) == ["nodes: 'db' is no host of this run; there are: w1, w2"]
    assert no_such_host(remotes, ("workers",)) == [
        "nodes: 'workers' is a group, and nodes= has names of hosts: nodes=w1,w2, or --limit workers"
    ]


def test_nodes_that_are_not_there_and_an_advice_that_can_be_pasted() -> None:
    with pytest.raises(ValueError, match="--limit w1,w2"):
        chosen_nodes(None, (), {}, ())
    with pytest.raises(ValueError, match="'wq' is no host of the inventory and no node; there are: w1, w2"):
        chosen_nodes(("w1", "wq"), (), {"w1": "w1", "w2": "w2"}, ())


class Namespaces:
    """A session of a cluster with two namespaces, or one that may not read them."""

    def __init__(self, *, forbidden: bool = False) -> None:
        self.forbidden = forbidden

    def fetch(self, path: str) -> dict[str, Any] | None:
        if self.forbidden:
            raise Forbidden("cp1", path, "no", "ask")
        return {} if path.rpartition("/")[2] in ("shop", "blog") else None

    def fetch_all(self, path: str) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name}} for name in ("shop", "blog")]


def test_namespaces_that_are_not_there() -> None:
    there, limited = Namespaces(), Namespaces(forbidden=True)
    check_namespaces(there, None)  # type: ignore[arg-type]
    check_namespaces(there, ("shop", "blog"))  # type: ignore[arg-type]
    check_namespaces(limited, ("shpo",))  # type: ignore[arg-type]
    with pytest.raises(DeployError, match="'shpo' is no namespace of this cluster, did you mean 'shop'\\? there are: blog, shop"):
        check_namespaces(there, ("blog", "shpo"))  # type: ignore[arg-type]


def test_what_is_not_proven_on_one_of_many_nodes_has_its_own_line(many: None) -> None:
    row = ["", "kubelet", "MemoryQoS", "false", "true", "confirmed"]
    why = "NOT PROVEN: /metrics could not be read"
    rows = [[f"w{n}", *row[1:], str(n), f"PID {n} is new; {why if n in (7, 8) else 'gates in /metrics'}"] for n in range(1, 13)]
    folded = capability._folded(rows)
    assert [(one[0], one[-1]) for one in folded] == [
        ("10 hosts: w1-w6, w9-w12", "PID 1-12 is new; gates in /metrics"),
        ("2 hosts: w7-w8", f"PID 7-8 is new; {why}"),
    ]


def test_plans_that_differ_in_a_mode_are_not_the_same() -> None:
    edit = FileEdit("/etc/kubernetes/x", None, b"x", 0o600)
    change = Change("c", "w1", "kubelet", "kubelet", "kubelet.service", "x", (edit,), "", None, None)
    shapes = {
        node_report._shape(SimpleNamespace(change=one, drain=None, recreates_pods=False))  # type: ignore[arg-type]
        for one in (
            change,
            replace(change, id="d", node="w2"),
            *(replace(change, files=(other,)) for other in (replace(edit, mode=0o666), replace(edit, owner="1:1"))),
        )
    }
    assert len(shapes) == 3


def test_what_is_not_proven_makes_an_exit_status_with_a_consent_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(bridge, "end_with", ended.append)
    end_unproven(["proven", "no sign that it works"], ["allow_unproven=true"])
    assert ended == []
    end_unproven(["NOT PROVEN: x"], ())
    end_unproven(["proven", "shown; NOT PROVEN: x"], ["allow_unproven=true"])
    assert ended == [UNPROVEN, UNPROVEN] == [3, 3]
