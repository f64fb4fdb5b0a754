"""A password for sudo gets to sudo by no command line: the line that sshd is given is run here, with a stand-in for sudo."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
