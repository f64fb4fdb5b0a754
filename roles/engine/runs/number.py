"""The number of a run: the node that holds the cluster's lock decides the order of runs, not the clocks of operators."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roles.engine.remote import RemoteError, Shell
from roles.engine.scripts import filled
from roles.engine.timeouts import patient
from roles.engine.transaction.change_script import HOME

ANSWER_SECONDS = 60
_LINE = re.compile(r"number ([0-9a-f-]{36}) ([0-9]{1,18})")


@dataclass(frozen=True)
class RunNumber:
    """`number` in the count named `count`; numbers of different counts do not compare."""

    count: str
    number: int

    @property
    def recorded(self) -> dict[str, str | int]:
        """As plain data."""
        return {"count": self.count, "number": self.number}


def script(home: str = HOME) -> str:
    """A script for POSIX sh as root; prints `number COUNT NUMBER`."""
    return filled("run_number.sh.j2", home=home)


def parse(lines: list[str]) -> RunNumber | None:
    found = next((match for line in lines if (match := _LINE.fullmatch(line.strip()))), None)
    return RunNumber(found[1], int(found[2])) if found else None


def run_number(remote: Shell) -> RunNumber:
    """The next number from the node that holds the cluster's lock. Raises RemoteError."""
    answer = remote.run(script(), timeout=patient(ANSWER_SECONDS))
    found = parse(answer.stdout) if answer.code == 0 else None
    if found is None:
        raise RemoteError(f"{remote.name}: the run could not get its number, and nothing begins without it: {answer.complaint}")
    return found
