"""No wait forgets the factor: limits come from roles/engine/timeouts.py, in the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.engine import timeouts
from roles.engine.timeouts import Deadline
from roles.pod_resize import DesiredResources
from tests.unit.clock import Clock

ROLES = Path(timeouts.__file__).parents[1]

#: Places whose limit was stretched before it came to them, as their own words say.
STRETCHED = {
    ("engine/tunnels/tunnel.py", "read"), ("engine/tunnels/tunnel.py", "request"), ("engine/tunnels/tunnel.py", "in_a_row"),
    ("engine/bridge/hosts.py", "ensure_connected"),
}  # fmt: skip


@pytest.fixture(scope="module")
def functions() -> list[tuple[str, ast.FunctionDef]]:
    """All of roles/ that have one of the words that the two tests look for."""
    return [
        (str(path.relative_to(ROLES)), found)
        for path in sorted(ROLES.rglob("*.py"))
        if path.name != "timeouts.py" and ("monotonic" in (text := path.read_text()) or "timeout" in text)
        for found in ast.walk(ast.parse(text))
        if isinstance(found, ast.FunctionDef)
    ]


def is_monotonic(found: ast.AST) -> bool:
    return isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute) and found.func.attr == "monotonic"


def stretches(found: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "patient" for one in ast.walk(found))


def test_a_time_to_come_is_made_of_a_stretched_limit(functions: list[tuple[str, ast.FunctionDef]]) -> None:
    forgot = {
        (path, function.name)
        for path, function in functions
        for found in ast.walk(function)
        if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add) and (is_monotonic(found.left) or is_monotonic(found.right))
        if not stretches(found)
    }
    assert forgot == STRETCHED, "use roles.engine.timeouts.Deadline"


def test_a_constant_is_stretched_before_it_is_a_commands_limit(functions: list[tuple[str, ast.FunctionDef]]) -> None:
    forgot = [
        (path, function.name, ast.unparse(word.value))
        for path, function in functions
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "run"
        for word in call.keywords
        if word.arg == "timeout" and not stretches(word.value) and any(is_constant(one) for one in ast.walk(word.value))
        if path != "engine/bridge/host_keys.py"  # of this machine's own ssh, which no node makes slow
    ]
    assert forgot == []


def is_constant(found: ast.AST) -> bool:
    return isinstance(found, ast.Constant) or (isinstance(found, ast.Name) and found.id.isupper())


@pytest.fixture
def slow() -> Iterator[None]:
    timeouts.set_factor([4])
    yield
    timeouts.set_factor([])


@pytest.mark.usefixtures("slow")
def test_the_end_of_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "time", Clock())
    deadline, set_by_hand = Deadline(10), Deadline(10, as_given=True)
    assert (deadline.seconds, set_by_hand.seconds, deadline.over) == (40, 10, False)
    deadline.pause(10)
    assert set_by_hand.over and not deadline.over and (deadline.passed, deadline.left) == (10, 30), "a pause is not stretched"
    deadline.pause(31)
    assert deadline.over and deadline.left == 0


@pytest.mark.usefixtures("slow")
def test_a_limit_that_is_set_is_meant_as_it_stands() -> None:
    assert timeouts.unless_set(300, False) == 1200 and timeouts.unless_set(300, True) == 300
    assert (
        DesiredResources(selector="shop/app=web").limit("resize_timeout") == 480
        and DesiredResources(selector="shop/app=web", resize_timeout=60).limit("resize_timeout") == 60
    )
