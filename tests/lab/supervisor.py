"""Keeps one node running: moves into the node's cgroups, boots it, and boots it again when it asks for a reboot.

python -m tests.lab.supervisor NAME FOLDER GROUP NSPAWN-COMMAND...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.machine import REBOOT, hierarchies, unified

# In the child only: the supervisor itself must outlive a kill of the node's cgroups. "0" is the process that writes it.
ENTER_GROUPS = 'for group in $1; do echo 0 >"$group/cgroup.procs" || exit 1; done; shift; exec "$@"'


def main() -> int:
    # The folder stands in the command line for whoever looks for the lab's supervisors (machine.supervisors).
    name, _folder, lab, *command = sys.argv[1:]
    stopping = False

    def stop(signum: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    environment = {**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network", "SYSTEMD_SECCOMP": "0"}
    groups = [] if unified() else [hierarchy / lab / name for hierarchy in hierarchies()]
    wrapped = ["sh", "-c", ENTER_GROUPS, "enter-groups", " ".join(map(str, groups)), *command]
    while not stopping:
        status = subprocess.Popen(wrapped, env=environment, stdin=subprocess.DEVNULL, start_new_session=True).wait()
        print(f"node ended with {status}", flush=True)
        for group in groups:
            for inner, _, _ in os.walk(group, topdown=False):
                if Path(inner) != group:
                    try:
                        os.rmdir(inner)
                    except OSError:
                        continue
        if status != REBOOT:
            break
    if not stopping:
        # It has powered off by itself: nothing of it answers on the network any more.
        subprocess.run(["ip", "netns", "del", f"{lab}-{name}"], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
