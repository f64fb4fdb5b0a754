"""The data of a host's power, its secrets, and the drivers, with programs in place of machines."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from roles.engine.inputs import read_model
from roles.engine.power import HostPower, PowerError, magic, switch_of
from roles.engine.transaction import Refusal

REDFISH = {"driver": "redfish", "address": "bmc", "user": "u", "password_env": "BMC"}
IPMI = {"driver": "ipmi", "address": "bmc", "user": "u", "password_file": "/nowhere"}
SECRET = "t0p-secret"


def power(**data: Any) -> Any:
    return HostPower(power=data).power


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({**REDFISH, "password": SECRET}, "a password does not belong into an inventory"),
        ({**REDFISH, "pass_word": SECRET}, "unknown field pass_word"),
        ({**REDFISH, "password_file": "x"}, "give one of password_env"),
        ({**REDFISH, "address": "http://bmc"}, "sends the password in clear"),
        ({**REDFISH, "address": f"https://u:{SECRET}@bmc"}, "without a user in it"),
        ({"driver": "ipmi"}, "address, user is missing"),
        ({"driver": "plug"}, "must be one of redfish, ipmi, wake_on_lan, command"),
        ({"driver": "wake_on_lan", "mac": "52:54"}, "six pairs"),
        ({"driver": "command", "on": [], "off": ["x"], "status": ["x"]}, "at least 1"),
        ("redfish", "power is no map"),
    ],
)
def test_what_the_data_may_not_be_is_said_without_its_values(data: Any, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_model("w1", {"power": data}.get, HostPower)
    assert words in str(refused.value) and SECRET not in str(refused.value)


def test_tls_is_verified_unless_the_inventory_says_otherwise() -> None:
    assert power(**REDFISH).verify is True and not power(**REDFISH).warnings
    assert "can answer for it" in power(**{**REDFISH, "verify": False}).warnings[0]
    assert power(**{**REDFISH, "address": "http://bmc", "verify": False}).url == "http://bmc"


def test_a_secret_goes_through_a_pipe_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Any, Any]] = []

    def run(argv: Any, **more: Any) -> Any:
        ran.append((argv, more))
        return SimpleNamespace(returncode=0, stdout='{"error": "no route"}', stderr="")

    monkeypatch.setenv("BMC", SECRET)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(PowerError) as raised:
        switch_of(power(**REDFISH)).state()
    [(argv, more)] = ran
    assert SECRET in more["input"] and SECRET not in str(argv) and "env" not in more and more["timeout"] == 60
    assert str(raised.value) == "redfish https://bmc: no route"


@pytest.mark.parametrize(("mode", "words"), [(0o644, "others may read"), (0o620, "others may read"), (0o600, "")])
def test_a_file_with_a_secret_is_for_its_owner_alone(tmp_path: Path, mode: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(mode)
    seen: list[str] = []
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda argv, **more: seen.append(more["input"]) or SimpleNamespace(returncode=0, stdout='{"state": "on"}', stderr=""),
    )
    switch = switch_of(power(**{**IPMI, "password_file": str(file)}))
    if not words:
        assert switch.state() == "on" and f'"{SECRET}"' in seen[0]
        return
    with pytest.raises(PowerError, match=words):
        switch.state()
    assert not seen


def test_a_secret_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BMC", raising=False)
    for data, words in ((REDFISH, "the environment has no BMC"), (IPMI, "No such file")):
        with pytest.raises(PowerError, match=words):
            switch_of(power(**data)).on()


@pytest.mark.parametrize(
    ("program", "state"),
    [("echo on", "on"), ("echo ' OFF '", "off"), ("echo on-ish", "unknown"), ("true", "unknown"), ("printf 'off\\non\\n'", "off")],
)
def test_the_first_line_of_status_decides(program: str, state: str) -> None:
    assert switch_of(_command(["sh", "-c", program])).state() == state


@pytest.mark.parametrize(
    ("argv", "words"),
    [(["sh", "-c", "echo bad >&2; exit 3"], "exit status 3: bad"), (["sleep", "30"], "no answer within 1 s"), (["/none"], "No such file")],
)
def test_a_program_that_fails_is_no_state(argv: list[str], words: str) -> None:
    with pytest.raises(PowerError, match=words):
        switch_of(_command(argv)).state()


def test_no_shell_reads_a_program() -> None:
    assert switch_of(_command(["echo", "on; echo off"])).state() == "unknown"


def _command(status: list[str]) -> Any:
    return power(driver="command", on=["true"], off=["true"], status=status, timeout=1)


def test_the_frame_that_wakes() -> None:
    frame = magic("52:54:00:12:34:56")
    assert frame == magic("52-54-00-12-34-56") and len(frame) == 102
    assert frame[:6] == b"\xff" * 6 and frame[6:] == bytes.fromhex("525400123456") * 16
    switch = switch_of(power(driver="wake_on_lan", mac="52:54:00:12:34:56"))
    assert switch.state() == "unknown"
    with pytest.raises(PowerError, match="cannot turn a machine off"):
        switch.force_off()


def test_the_model_alone_takes_no_secret() -> None:
    with pytest.raises(ValidationError):
        power(**REDFISH, password=SECRET)
