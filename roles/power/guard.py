"""Which nodes a consolidation has left on for the pods of others, as long as these are out of service: they are not turned off by name.

Its run is named by the marks on the nodes that it took out, and its record, which the host of the lock keeps, says which nodes it left on.
A node's own credential can write a mark, and so at most remove this guard, or have a record of another run looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from roles.engine.commands import command
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube import Object
from roles.engine.kube.fields import name_of
from roles.engine.objects import Session
from roles.engine.outage import read_mark
from roles.engine.transaction.record import OBJECTS_KIND

#: In `about` of the record of a run: the names of the nodes that it has left on.
KEEPS = "keeps"
# Runs that marks name, the newest first: anybody may write any number.
_MOST_RUNS, _FEW = 20, 5


def needed_by(session: Session, nodes: Mapping[str, Object], hosts: Mapping[str, str]) -> list[str]:
    """Why hosts must stay on. `nodes`: all of the cluster, by name; `hosts`: those that would go off, by the name of their Node."""
    out: dict[str, list[str]] = {}
    for node in nodes.values():
        if name_of(node) not in hosts and (mark := read_mark(node)) is not None:
            out.setdefault(mark.run, []).append(name_of(node))
    found = []
    for run in sorted(out, reverse=True)[:_MOST_RUNS]:
        found += [_refusal(hosts[node], run, out[run]) for node in _kept(session.recorded(run)) if node in hosts]
    return found


def _kept(events: Collection[Mapping[str, object]]) -> Iterator[str]:
    first = next((event for event in events if event.get("kind") == OBJECTS_KIND), {})
    about = first.get("about")
    kept = about.get(KEEPS) if isinstance(about, Mapping) else None
    yield from (one for one in kept if isinstance(one, str)) if isinstance(kept, list) else ()


def _refusal(host: str, run: str, out: Collection[str]) -> str:
    away = one_line(shortened(sorted(out), _FEW))
    ways = f"{command('consolidate', nodes=host)} judges whether it can go now; {command('rollback', run=run)} brings {away} back first"
    return f"{host}: run {run} left it on when it took {away} out, so their pods may need it: {ways}; or --data allow_needed=true"
