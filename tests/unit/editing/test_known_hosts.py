"""Known hosts as ssh reads them; where there is an ssh-keygen, its -F finds the same lines."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import paramiko
import pytest

from roles.engine.editing.known_hosts import KnownKey, fingerprint, keys_of, lists_key, verdict

KIND = "ecdsa-sha2-nistp256"
ONE, TWO = (paramiko.ECDSAKey.generate() for _ in range(2))


def line(patterns: str, key: paramiko.PKey = ONE, marker: str = "") -> str:
    return f"{marker}{' ' if marker else ''}{patterns} {key.get_name()} {key.get_base64()} a comment\n"


def marks(text: str, name: str) -> list[str]:
    return [key.where for key in keys_of(text, name, "f")]


@pytest.mark.parametrize(
    ("patterns", "name", "about"),
    [
        ("w1", "w1", True),
        ("W1", "w1", True),
        ("w1", "W1", True),
        ("cp1,w1,10.0.0.1", "10.0.0.1", True),
        ("w1", "w11", False),
        ("w?", "w1", True),
        ("*.example.net", "w1.example.net", True),
        ("*.example.net,!w1.example.net", "w1.example.net", False),
        ("!w1.example.net", "w2.example.net", False),
        ("w.", "w1", False),
        ("[w1]:2222", "[w1]:2222", True),
        ("[w1]:2222", "w1", False),
        ("w1", "[w1]:2222", False),
        ("[w1]:*", "[w1]:2222", True),
        ("[ab]1", "a1", False),
    ],
)
def test_which_hosts_a_line_is_about(patterns: str, name: str, about: bool, tmp_path: Path) -> None:
    text = f"# w1\n\n{line(patterns)}"
    assert marks(text, name) == (["f:3"] if about else [])
    if shutil.which("ssh-keygen"):
        (tmp_path / "known").write_text(text)
        done = subprocess.run(["ssh-keygen", "-F", name, "-f", tmp_path / "known"], capture_output=True, text=True, check=False)
        assert (ONE.get_base64() in done.stdout) is about


def test_a_hashed_name() -> None:
    text = line(paramiko.HostKeys.hash_host("[w1]:2222"))
    assert marks(text, "[w1]:2222") == ["f:1"] and not marks(text, "w1")
    assert not marks(line("|1|no|base64!"), "w1") and not marks(line("|2|YQ==|YQ=="), "w1")


def test_lines_that_ssh_cannot_read_are_passed_over() -> None:
    blob = base64.b64encode(b"\0\0\0\3foo").decode()
    text = f"w1 {KIND}\nw1 {KIND} !!!\nw1 {KIND} {blob}\n@other w1 {KIND} {ONE.get_base64()}\n{line('w1')}"
    assert marks(text, "w1") == ["f:5"]


def test_what_lines_say_of_a_key() -> None:
    blob = ONE.asbytes()
    known = [KnownKey(KIND, TWO.asbytes(), "", "f:1"), KnownKey(KIND, blob, "", "f:2")]
    assert verdict(known, blob) == ("known", "f:2")
    assert verdict(known[:1], blob) == ("changed", "f:1")
    assert verdict([], blob) == ("new", "")
    assert verdict([*known, KnownKey(KIND, blob, "@revoked", "g:1")], blob) == ("revoked", "g:1")
    # An authority's own key is no key of a host.
    assert verdict([KnownKey(KIND, blob, "@cert-authority", "f:1")], blob) == ("new", "")


def test_a_list_of_keys() -> None:
    text = f"# revoked\n{KIND} {TWO.get_base64()} old\n"
    assert lists_key(text, TWO.asbytes()) and not lists_key(text, ONE.asbytes())
    assert fingerprint(ONE.asbytes()) == ONE.fingerprint
