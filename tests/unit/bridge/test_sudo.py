"""A password for sudo gets to sudo by no command line: the line that sshd is given is run here, with a stand-in for sudo."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.bridge import sudo
from roles.engine.bridge.hosts import _become

PASSWORD = """ s3cret "quoted' $HOME \\n*"""
# As sudo -A does, and it says what it saw: its own words, those of the process above, the password.
SUDO = """\
#!/bin/sh
echo "words: $1 $2 $3"
printf 'password: %s\\n' "$("$SUDO_ASKPASS")"
for pid in $$ $PPID; do tr '\\0' ' ' <"/proc/$pid/cmdline"; done >>"$0.seen"
shift 3
exec "$@"
"""
ASKPASS = "#!/bin/sh\nprintf '%s\\n' \"$PYINFRA_SUDO_PASSWORD\"\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, text in (("sudo", SUDO), ("askpass of pyinfra", ASKPASS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("_accepted", "_refused", "_turns"):
        monkeypatch.setattr(sudo, name, type(getattr(sudo, name))())
    laid_down = {"sudo_askpass_path__/tmp": str(tmp_path / "askpass of pyinfra")}
    return SimpleNamespace(connector_data=laid_down, get_temp_dir_config=lambda: "/tmp", state=None)


@pytest.mark.parametrize("prompted", [False, True])
def test_the_password_comes_by_standard_input_alone(prompted: bool, host: Any, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"_sudo": True}
    if prompted:
        host.connector_data["prompted_sudo_password"] = PASSWORD
    else:
        arguments["_sudo_password"] = PASSWORD
    command, first = _become(host, "cat; echo it\\'s done", arguments)
    assert "s3cret" not in command
    # What comes after the password is the script's own input, to the byte.
    done = subprocess.run(command, shell=True, input=f"{first}its own\ninput", capture_output=True, text=True, check=True)
    assert done.stdout == f"words: -H -A -k\npassword: {PASSWORD}\nits own\ninputit's done\n"
    assert "s3cret" not in (tmp_path / "sudo.seen").read_text()


def test_without_a_password_nothing_is_read(host: Any) -> None:
    assert _become(host, "true", {"_sudo": True}) == ("sudo -H -n sh -c true", "")
    assert _become(host, "true", {"_sudo_password": "x"}) == ("sh -c true", "")


# As sudo does with a wrong password: it asks three times.
ASKS_AGAIN = """\
#!/bin/sh
for try in 1 2 3; do
    said=$("$SUDO_ASKPASS" 2>/dev/null) || { echo "sudo: no password was provided" >&2; exit 1; }
    printf "%s\\n" "$said" >>"$0.tries"; echo "Sorry, try again." >&2
done
echo "sudo: 3 incorrect password attempts" >&2; exit 1
"""


def test_a_wrong_password_is_tried_once(host: Any, tmp_path: Path) -> None:
    (tmp_path / "sudo").write_text(ASKS_AGAIN)
    command, first = _become(host, "true", {"_sudo": True, "_sudo_password": PASSWORD})
    done = subprocess.run(command, shell=True, input=first, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and (tmp_path / "sudo.tries").read_text() == f"{PASSWORD}\n"
    assert sudo.refused(done.stderr.splitlines(), PASSWORD) == sudo.WRONG and not list(tmp_path.glob("*.once"))


def test_a_password_that_one_host_refuses_is_tried_on_no_other(host: Any) -> None:
    with pytest.raises(RuntimeError), sudo.first_use("w1", "x"):
        raise RuntimeError(f"w1: {sudo.WRONG}")
    with pytest.raises(sudo.WrongPassword, match="w2: not tried: sudo on w1 does not accept this password"), sudo.first_use("w2", "x"):
        pass
    with sudo.first_use("w2", "y"), pytest.raises(RuntimeError), sudo.first_use("w1", "z"):
        raise RuntimeError("the connection was lost")
    sudo.accepted("z")
    with sudo.first_use("w2", "z"), sudo.first_use("w3", ""):
        pass


@pytest.mark.parametrize("line", ["sudo: a password is required", "sudo-rs: interactive authentication is required"])
def test_without_a_terminal_the_cause_is_named(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sudo, "_has_terminal", lambda found=terminal: found)
        assert ("there is no terminal to ask you on" in sudo.refused([line], "")) is not terminal
        assert sudo.refused([line], "x") == sudo.WRONG and sudo.refused(["bash: no such command"], "") == ""
