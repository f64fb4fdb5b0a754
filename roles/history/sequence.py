"""The order of runs, by the numbers of the nodes and not by an operator's clock. Pure.

Each node counts its changes, and the node that holds the cluster's lock counts the runs (templates/run_number.sh.j2). Each of these counts
orders the runs that it has seen; together they order most pairs of runs. A pair that no count orders has no known order: nothing is guessed
from the names of runs, which begin with the time on the operator's machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from roles.history.facts import Recorded


class Unordered(Exception):
    """It is not known which of several runs is the newest. `runs`: their names, sorted."""

    def __init__(self, runs: Collection[str]) -> None:
        super().__init__(", ".join(sorted(runs)))
        self.runs = sorted(runs)


class Sequenced:
    """The order of the runs in the records of all nodes."""

    def __init__(self, history: Mapping[str, Sequence[Recorded]]) -> None:
        changes = [change for recorded in history.values() for change in recorded if change.run]
        self._runs = {change.run for change in changes}
        self._after: dict[str, set[str]] = {run: set() for run in self._runs}
        for count in _counts(changes):
            for earlier, later in pairwise(sorted(count, key=lambda run: count[run])):
                if count[earlier] != count[later]:
                    self._after[earlier].add(later)

    def newest(self, runs: Collection[str]) -> str:
        """The one of `runs` (at least one) that is newer than all others. Raises Unordered."""
        wanted = set(runs)
        last = {run for run in wanted if not (self._later(run) & wanted)}
        if len(last) == 1:
            return last.pop()
        # `last` is empty if the counts contradict each other.
        raise Unordered(last or wanted)

    def sort(self, runs: Collection[str]) -> list[str]:
        """For display, the newest last; runs without a known order by name."""
        left, found = set(runs), list[str]()
        while left:
            last = [run for run in left if not (self._later(run) & left - {run})] or list(left)
            found.append(max(last))
            left.discard(found[-1])
        return found[::-1]

    def _later(self, run: str) -> set[str]:
        """All runs that are known to be newer than `run`."""
        found: set[str] = set()
        more = list(self._after.get(run, ()))
        while more:
            one = more.pop()
            if one not in found:
                found.add(one)
                more += self._after[one]
        return found


def _counts(changes: Iterable[Recorded]) -> Iterable[dict[str, int]]:
    """For each count, the number of each run that it has seen; if a run has several changes, the number of the last one. If nodes name
    different numbers of a run, it has none."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    unclear: set[tuple[str, str]] = set()
    for change in changes:
        if change.number is not None:
            own = found.setdefault(("node", change.host), {})
            own[change.run] = max(own.get(change.run, 0), change.number)
        given = change.run_number
        if given is not None and found.setdefault(("runs", given[0]), {}).setdefault(change.run, given[1]) != given[1]:
            unclear.add((given[0], change.run))
    for name, run in unclear:
        found["runs", name].pop(run, None)
    return found.values()
