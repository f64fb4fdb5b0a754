"""The password for sudo never stands in a command line, where every user of the node can read it (proc(5), cmdline)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pyinfra.api.config import Config
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from roles.rollout.remote import Remote

PASSWORD = 'it\'s "my" $secret \\ *'


def test_sudo_gets_it_and_no_command_line_has_it(tmp_path: Path) -> None:
    sudo, askpass = tmp_path / "sudo", tmp_path / "askpass"
    # As sudo does it with -A; it shows what everybody could read of it and of its parent meanwhile.
    sudo.write_text(
        '#!/bin/sh\n"$SUDO_ASKPASS"\nfor pid in $$ $PPID; do tr "\\0" " " </proc/$pid/cmdline; echo; done\n'
        'while [ "$1" != sh ]; do shift; done\nunset PYINFRA_SUDO_PASSWORD\nexec "$@"\n'
    )
    askpass.write_text("#!/bin/sh\nprintf '%s\\n' \"$PYINFRA_SUDO_PASSWORD\"\n")
    for file in (sudo, askpass):
        file.chmod(0o755)
    state = State()
    state.init(Inventory((["w1"], {})), Config())
    host = state.inventory.get_host("w1")
    host.connector_data[f"sudo_askpass_path__{host.get_temp_dir_config()}"] = str(askpass)
    command, password = Remote(host)._command('echo "as root: $(cat)"', {"_sudo": True, "_sudo_password": PASSWORD})
    assert password == PASSWORD and "my" not in command
    done = subprocess.run(
        ["sh", "-c", command], input=f"{password}\nwhat is fed\n", text=True, capture_output=True, timeout=60, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == PASSWORD and lines[-1] == "as root: what is fed" and not any("my" in line for line in lines[1:])


def test_without_a_password_nothing_is_read() -> None:
    state = State()
    state.init(Inventory((["w1"], {})), Config())
    command, password = Remote(state.inventory.get_host("w1"))._command("cat", {"_sudo": True})
    assert password is None and command == "sudo -H -n sh -c cat"
