"""python -m tests.vagrant up | test | down | status | ssh MACHINE [COMMAND...]"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.lab.tools import LabError, say
from tests.vagrant import machines, scenario


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.vagrant", description="A cluster of real virtual machines, and daytwo against it.")
    verbs = made.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="bring the machines up; does only what is missing")
    test = verbs.add_parser("test", help="up, every deploy against them, a reboot in mid-change; then down")
    test.add_argument("--keep", action="store_true", help="leave the machines there at the end")
    test.add_argument("--only", default="", help="only these steps, with commas between")
    verbs.add_parser("down", help="take everything down")
    verbs.add_parser("status", help="what runs")
    ssh = verbs.add_parser("ssh", help="a shell on a machine, or one command")
    ssh.add_argument("machine", choices=machines.NAMES)
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    return made


def main() -> int:
    given = parser().parse_args()
    begun = time.monotonic()
    try:
        match given.verb:
            case "up":
                machines.up()
                say(f"{' and '.join(machines.NAMES)} are up ({time.monotonic() - begun:.0f} s)")
                say("pyinfra inventories/vagrant.py deploys/status.py -y; ssh -F tests/vagrant/.vagrant/ssh_config cp1")
            case "test":
                return scenario.main(keep=given.keep, only=tuple(filter(None, given.only.split(","))))
            case "down":
                machines.down()
                say(f"gone ({time.monotonic() - begun:.0f} s)")
            case "status":
                machines.status()
            case "ssh":
                os.execvp("ssh", ["ssh", "-F", str(machines.SSH_CONFIG), given.machine, *given.command])
    except LabError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
