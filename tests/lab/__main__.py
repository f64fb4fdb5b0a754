"""python -m tests.lab up | down [--all] | metrics | list | fetch [VERSION...] | reset [NODE...] | start, stop, kill, reboot NODE |
power NODE status|on|off | ssh NODE [COMMAND...] | status"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.lab import binaries, registry
from tests.lab.cluster import REPOSITORY_ROOT, Lab, Shape, down_all
from tests.lab.tools import LabError, say


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.lab", description="A real Kubernetes cluster on this machine.")
    verbs = made.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make or start the cluster; does only what is missing")
    up.add_argument("--control-planes", type=int, default=int(os.environ.get("CONTROL_PLANES") or 1))
    up.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS") or 2))
    down = verbs.add_parser("down", help="remove everything the lab made")
    down.add_argument("--all", action="store_true", help="every lab of this checkout, and what is left of broken ones")
    down.add_argument("--checkout", type=Path, default=REPOSITORY_ROOT, help="of another checkout of the project")
    verbs.add_parser("metrics", help="what metrics-server needs here: an image of it on all nodes, and pods that reach nodes, until a boot")
    verbs.add_parser("list", help="the labs of this machine")
    verbs.add_parser("status", help="which nodes run")
    fetch = verbs.add_parser("fetch", help="have Kubernetes' binaries in the cache (of the two minors that tests ask, when none is named)")
    fetch.add_argument("version", nargs="*", default=[binaries.DEFAULT_VERSION, binaries.OLDER_VERSION])
    fetch.add_argument("--extra", default="", help=f"programs beside Kubernetes too, built once: {','.join(binaries.EXTRAS)}")
    reset = verbs.add_parser("reset", help="nodes back to what they were right after `up` (all, when none is named)")
    reset.add_argument("node", nargs="*")
    for verb, text in (
        ("start", "boot a node"),
        ("stop", "shut a node down in order"),
        ("kill", "pull a node's plug"),
        ("reboot", "reboot a node in order and wait until it is back"),
    ):
        verbs.add_parser(verb, help=text).add_argument("node")
    power = verbs.add_parser("power", help="a node's power as its BMC has it: prints on or off, presses the button, pulls the plug")
    power.add_argument("node")
    power.add_argument("what", choices=("status", "on", "off"))
    ssh = verbs.add_parser("ssh", help="a shell on a node as root, or one command")
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    return made


def how_to_use(name: str) -> list[str]:
    """The commands for a shell in this checkout, which has daytwo in any folder then."""
    inventory = REPOSITORY_ROOT / "inventories/lab.py"
    return [
        f". {REPOSITORY_ROOT / '.venv/bin/activate'}",
        f"export DAYTWO_INVENTORY={inventory}" + (f" LAB={name}" if name else ""),
        "daytwo status",
    ]


def main() -> int:
    given = parser().parse_args()
    begun = time.monotonic()
    try:
        lab = Lab()
        match given.verb:
            case "up":
                lab.up(Shape.common(given.control_planes, given.workers))
                say(f"Kubernetes {lab.version} runs on {', '.join(lab.nodes)} ({time.monotonic() - begun:.1f} s)")
                ssh, kubectl = (path.relative_to(REPOSITORY_ROOT) for path in (lab.ssh_config, lab.kubeconfig))
                say(f"ssh -F {ssh} {lab.nodes[0]}; kubectl --kubeconfig {kubectl} get nodes")
                print("\n".join(how_to_use(lab.name)))
            case "down":
                gone = [f"{lab}"] if not given.all else down_all(given.checkout.resolve())
                if not given.all:
                    Lab(None, given.checkout.resolve()).down()
                say(f"gone: {', '.join(gone) or 'nothing, there was no lab'} ({time.monotonic() - begun:.1f} s)")
            case "metrics":
                lab.connect_pods()
                print(f"next: daytwo metrics_server metrics_server={lab.load_extra('metrics-server')} --dry")
            case "list":
                for entry in registry.entries():
                    made = Lab(entry.name, Path(entry.checkout))
                    print(f"{entry.site.group}\t{entry.name or '-'}\t{made.shape or 'not complete'}\t{entry.checkout}")
            case "fetch":
                for version in given.version:
                    say(f"Kubernetes {version}: {binaries.get(version)}")
                for name in given.extra.split(",") if given.extra else ():
                    say(f"{name}: {binaries.extra(name)}")
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
            case "power":
                print("on" if lab.powered(given.node, given.what) else "off")
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
