"""`python -m roles.consolidation`: what it reads, what it prints, and what is wrong with wrong input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roles.consolidation.__main__ import main
from tests.benchmarks.packing.clusters import cluster


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(text: str, *options: str) -> Done:
        (tmp_path / "cluster.json").write_text(text)
        code = main([str(tmp_path / "cluster.json"), *options])
        return Done(code, *capsys.readouterr())

    return run


def test_the_plan_is_printed_as_json(planned: Callable[..., Done]) -> None:
    given = cluster(1, 8, 6, off=2)
    found = json.loads(planned(json.dumps(given)).stdout)
    prices = given["cost"] | {one["name"]: one["cost"] for one in given["off"]}
    assert found["cost"] == pytest.approx(sum(prices[node] for node in found["nodes"]))
    assert set(found["woken"]) <= set(found["nodes"]) and found["bound"] <= found["cost"]
    assert found["moves"] and all(pod.startswith("d/") and node in found["nodes"] for pod, node in found["moves"].items())
    few = json.loads(planned(json.dumps(given), "--max-moves", "3", "--spare", "1").stdout)
    assert len(few["moves"]) <= 3 and few["cost"] >= found["cost"]


NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("{", "Expecting"),
        ([], "not an object"),
        ({"node": []}, "unknown key node"),
        ({"nodes": {"a": 1}}, "nodes is not a list"),
        ({"nodes": [{"kind": "Node"}]}, r"nodes\[0\] has no metadata.name"),
        ({"nodes": [NODE]}, "cost of a: it is missing"),
        ({"nodes": [NODE], "cost": {"a": "1"}}, "cost of a: '1' is not a number"),
        ({"nodes": [NODE], "cost": {"a": -1}}, "machine a costs -1"),
        ({"nodes": [NODE], "cost": {"a": 1}, "off": [{"name": "a", "cost": 1, "capacity": {}}]}, "machine a is listed twice"),
        ({"nodes": [NODE], "cost": {"a": 1}, "pods": [{"metadata": {"name": "p"}, "spec": "x"}]}, "spec and status are objects"),
        ({"nodes": [{**NODE, "status": {"allocatable": {"cpu": "x"}}}], "cost": {"a": 1}}, "'x' is not a quantity"),
        ({"nodes": [{**NODE, "spec": "x"}], "cost": {"a": 1}}, "spec and status are objects"),
        (
            {"nodes": [NODE], "cost": {"a": 1}, "pods": [{"metadata": {"name": "p"}, "spec": {"nodeName": "a", "containers": "x"}}]},
            "not as the API writes it",
        ),
    ],
)
def test_wrong_input_has_one_line_that_says_what_is_wrong(planned: Callable[..., Done], given: Any, wrong: str) -> None:
    done = planned(given if isinstance(given, str) else json.dumps(given))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert re.search(wrong, done.stderr)
