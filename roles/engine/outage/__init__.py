"""Draining nodes: which pods leave, in which order and waves, evicted by their UID, replaced, proven; and the cordon, with whose it is.

How a run takes a node out of service for a purpose (a reboot, a change that must not meet running pods):

    notes, refusals = plan_outages(live, wanted, stages, consents, now, purpose)   # before any write, for all nodes
    outage = NodeOutage(session, node, consents, context.run, purpose, limit=limit)
    ...                          # in the node's turn:
    outage.take(context)         # plans again, cordons, evicts in waves, waits for the replacements, proves; or uncordons and raises
    ...                          # what it is taken for; if that fails and the node must stay cordoned, do not give it back
    outage.give_back(context)    # uncordons, unless the node was cordoned before, or someone has cordoned it since

`session` is `roles.engine.objects.connect_cluster(...).session`; `node` the name of the Node (`ConnectedCluster.names` has it by
host); `context` is that of the step (roles/engine/context.py). The mark on the node (OUTAGE) names the run: deploys/uncordon.py, a
resumed run and a roll-back know the cordon by it. A node that is not Ready cannot be drained: `take` refuses it.

A run that may drain other nodes meanwhile gives all its outages the same RunLimit.

Several nodes at once are drained by one plan (`plan_drain` sums up the budgets) and one `Drainer`, as roles/drain/ does. The pure part
(`plan_drain`) knows no host; `read_drain` reads what it needs.
"""

from roles.engine.outage import cordon, drainer, evicting, fates, lint_places, places, undo
from roles.engine.outage.cordon import node_fate
from roles.engine.outage.drainer import Drainer
from roles.engine.outage.mark import Mark, read_mark
from roles.engine.outage.model import DrainConsents, DrainPlan, NodeFate, PodFate, Purpose, Wanted
from roles.engine.outage.node import NodeOutage, end_outage
from roles.engine.outage.plan import ask_again, plan_drain, plan_outages
from roles.engine.outage.reading import cluster_time, read_drain
from roles.engine.outage.report import plan_text

__all__ = [
    "DrainConsents",
    "DrainPlan",
    "Drainer",
    "Mark",
    "NodeFate",
    "NodeOutage",
    "PodFate",
    "Purpose",
    "Wanted",
    "ask_again",
    "cluster_time",
    "cordon",
    "drainer",
    "end_outage",
    "evicting",
    "fates",
    "lint_places",
    "node_fate",
    "places",
    "plan_drain",
    "plan_outages",
    "plan_text",
    "read_drain",
    "read_mark",
    "undo",
]
