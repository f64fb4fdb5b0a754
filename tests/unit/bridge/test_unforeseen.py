"""An error that nobody foresaw becomes one sentence with its place; the traceback goes to a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra.api.exceptions import DeployError

from roles.engine.bounds import span
from roles.engine.bridge import refuse, unforeseen
from roles.engine.disruption.budgets import read_status


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(unforeseen, "_kept", {})
    return tmp_path / "daytwo/errors"


def test_any_error_is_a_refusal_with_its_place(state: Path) -> None:
    with pytest.raises(DeployError) as refusal, unforeseen.refused():
        read_status({"status": 7})
    said = str(refusal.value)
    assert "AttributeError: 'int' object has no attribute 'get', in roles/engine/disruption/budgets.py:" in said and "\n" not in said
    assert refusal.value.__cause__ is None and refusal.value.__traceback__ is None
    (kept,) = state.iterdir()
    assert str(kept) in said and "Traceback" in kept.read_text() and kept.stat().st_mode & 0o777 == 0o600


def test_a_refusal_stays_and_secrets_and_escapes_do_not_show(state: Path) -> None:
    with pytest.raises(DeployError, match=r"^w1: no$"), unforeseen.refused():
        raise refuse("w1: no")
    secret = "password=abc123 \x1b[2J"
    with pytest.raises(DeployError) as refusal, unforeseen.refused():
        raise ValueError(secret)
    (kept,) = state.iterdir()
    for text in (str(refusal.value), kept.read_text()):
        assert "abc123" not in text and "\x1b" not in text


def test_the_same_error_of_many_hosts_is_kept_once(state: Path) -> None:
    for _ in range(50):
        with pytest.raises(DeployError), unforeseen.refused():
            span({})  # type: ignore[arg-type]
    assert len(list(state.iterdir())) == 1


def test_without_room_for_a_file_the_sentence_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no")
    assert "report it with this line and the command" in unforeseen.sentence(KeyError("x"))
