"""A node as a power off leaves it, without the minutes that one takes."""

from __future__ import annotations

import json

from roles.engine.outage.mark import OUTAGE
from tests.lab import Lab


def sleeps(lab: Lab, node: str) -> None:
    """Cordoned and marked by daytwo, drained, off, NotReady."""
    mark = json.dumps({"run": "r20260101-000000-0000", "purpose": "power-off", "boot": lab.boot_id(node)})
    patch = {"metadata": {"annotations": {OUTAGE: mark}}, "spec": {"unschedulable": True}}
    lab.kubectl("patch", "node", node, "--field-manager=daytwo", "-p", json.dumps(patch))
    lab.kubectl("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--grace-period=1")
    lab.powered(node, "off")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    lab.kubectl("patch", "node", node, "--subresource=status", "-p", json.dumps(ready))
