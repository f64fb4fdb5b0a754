"""python -m tests.lab up | down | fetch [VERSION...] | reset [NODE...] | start, stop, kill, reboot NODE | ssh NODE [COMMAND...] | status"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.lab import binaries
from tests.lab.cluster import Lab
from tests.lab.tools import LabError, say


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.lab", description="A real Kubernetes cluster on this machine.")
    verbs = made.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make or start the cluster; does only what is missing")
    up.add_argument("--control-planes", type=int, default=int(os.environ.get("CONTROL_PLANES") or 1))
    up.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS") or 2))
    verbs.add_parser("down", help="remove everything the lab made")
    verbs.add_parser("status", help="which nodes run")
    fetch = verbs.add_parser("fetch", help="have Kubernetes' binaries in the cache (of the two minors that tests ask, when none is named)")
    fetch.add_argument("version", nargs="*", default=[binaries.DEFAULT_VERSION, binaries.OLDER_VERSION])
    reset = verbs.add_parser("reset", help="nodes back to what they were right after `up` (all, when none is named)")
    reset.add_argument("node", nargs="*")
    for verb, text in (
        ("start", "boot a node"),
        ("stop", "shut a node down in order"),
        ("kill", "pull a node's plug"),
        ("reboot", "reboot a node in order and wait until it is back"),
    ):
        verbs.add_parser(verb, help=text).add_argument("node")
    ssh = verbs.add_parser("ssh", help="a shell on a node as root, or one command")
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    return made


def main() -> int:
    given = parser().parse_args()
    begun = time.monotonic()
    try:
        lab = Lab()
        match given.verb:
            case "up":
                lab.up(given.control_planes, given.workers)
                say(f"Kubernetes {lab.version} runs on {', '.join(lab.nodes)} ({time.monotonic() - begun:.1f} s)")
                say(f"ssh -F .lab/ssh_config {lab.nodes[0]}; kubectl --kubeconfig .lab/kubeconfig get nodes")
            case "down":
                lab.down()
                say(f"gone ({time.monotonic() - begun:.1f} s)")
            case "fetch":
                for version in given.version:
                    say(f"Kubernetes {version}: {binaries.get(version)}")
            case "reset":
                lab.reset(*given.node)
            case "start":
                lab.start(given.node)
            case "stop":
                lab.stop(given.node)
            case "kill":
                lab.kill(given.node)
            case "reboot":
                lab.reboot(given.node)
            case "ssh":
                lab.machine(given.node)  # an unknown name is told as such, not by ssh
                os.execvp("ssh", ["ssh", "-F", str(lab.ssh_config), given.node, *given.command])
            case "status":
                for machine in [*map(lab.machine, lab.nodes), *([lab.balancer] if lab.balancer else [])]:
                    print(f"{machine.name}\t{machine.address}\t{'running' if machine.supervisor else 'stopped'}")
    except LabError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
