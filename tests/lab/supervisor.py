"""Keeps one node running: moves into the node's cgroups, boots it, and boots it again when it asks for a reboot.

python -m tests.lab.supervisor NAME FOLDER NSPAWN-COMMAND...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.machine import GROUP, REBOOT, hierarchies, start_ticks, unified


def main() -> int:
    name, folder, command = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    (folder / "supervisor.new").write_text(f"{os.getpid()} {start_ticks(os.getpid())}\n")
    (folder / "supervisor.new").rename(folder / "supervisor")
    stopping = False

    def stop(signum: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    environment = {**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network", "SYSTEMD_SECCOMP": "0"}
    groups = [] if unified() else [hierarchy / GROUP / name for hierarchy in hierarchies()]

    def enter_groups() -> None:
        # In the child only: the supervisor itself must outlive a kill of the node's cgroups.
        for group in groups:
            (group / "cgroup.procs").write_text("0")

    while True:
        status = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, preexec_fn=enter_groups, start_new_session=True
        ).wait()
        print(f"node ended with {status}", flush=True)
        for group in groups:
            for inner, _, _ in os.walk(group, topdown=False):
                if Path(inner) != group:
                    try:
                        os.rmdir(inner)
                    except OSError:
                        continue
        if status != REBOOT or stopping:
            (folder / "supervisor").unlink(missing_ok=True)
            return 0


if __name__ == "__main__":
    sys.exit(main())
