"""Asks hosts as daytwo does under pyinfra's own command, which lets gevent patch what waits: JSON on standard input, JSON on standard output."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from pathlib import Path
from typing import Any

importlib.import_module("gevent.monkey").patch_all()

from pyinfra.api.config import Config  # noqa: E402 - what waits is patched first
from pyinfra.api.inventory import Inventory  # noqa: E402
from pyinfra.api.state import State  # noqa: E402

from roles.engine.bridge import Feed, Remote, at_once  # noqa: E402
from roles.engine.remote import RemoteError  # noqa: E402


def connected(port: int, folder: Path) -> Remote:
    (folder / "config").write_text(f"Host *\nStrictHostKeyChecking no\nUserKnownHostsFile {folder}/known\nGlobalKnownHostsFile none\n")
    words = {"hostname": "127.0.0.1", "port": port, "user": "ops", "password": "x", "config_file": str(folder / "config")}
    data = {f"ssh_{key}": value for key, value in words.items()}
    inventory = Inventory(([("w1", {**data, "ssh_allow_agent": False, "ssh_look_for_keys": False})], {}))
    State().init(inventory, Config(CONNECT_TIMEOUT=20))
    made = Remote(inventory.get_host("w1"))
    made.ensure_connected()
    return made


def asked(remote: Remote, script: str, stdin: str | None, timeout: float, replies: dict[str, str | None]) -> dict[str, Any]:
    """The answer, with each line as it was heard; `replies` has what is said to a line (None: the end)."""
    feed, heard = Feed() if replies else None, list[str]()

    def on_line(line: str) -> None:
        heard.append(line)
        if feed is not None:
            feed.put(replies[line])

    try:
        answer = remote.run(script, stdin=stdin, on_line=on_line, feed=feed, timeout=timeout)
    except RemoteError as error:
        return {"error": str(error)}
    return {"code": answer.code, "stdout": answer.stdout, "stderr": answer.stderr, "heard": heard}


if __name__ == "__main__":
    remote = connected(int(sys.argv[1]), Path(sys.argv[2]))
    works = [functools.partial(asked, remote, *question) for question in json.load(sys.stdin)]
    print(json.dumps(at_once(works), default=repr))
