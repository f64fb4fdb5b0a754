"""Flags of the control plane and the files that they name, on cp1: what tests set, and what was there before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration import operator
from tests.integration.kubeadm_pods import stored
from tests.integration.operator import Outcome, data, pyinfra, wait_for
from tests.lab import Lab

API, MANAGER, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
FOLDER = "/etc/kubernetes/daytwo"
CONFIG, AUDIT = f"{FOLDER}/scheduler/config.yaml", f"{FOLDER}/audit-policy.yaml"
PROFILE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}
  plugins:
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}, {name: ImageLocality}]
      enabled: [{name: NodeResourcesFit, weight: 100}]
"""
POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [patch]
  resources: [{group: "", resources: [configmaps], resourceNames: [kubeadm-config]}]
- level: None
"""
AUDITED = {"event-ttl": "2h", "audit-policy-file": AUDIT, "audit-log-path": "-"}
# Somebody else's file that is there before: it keeps its mode and owner.
THEIRS = "604 65534:1"


def deploy(*more: str, dry: bool = False, **values: object) -> Outcome:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return pyinfra("control_plane_flags", "--dry" if dry else "-y", *data(**texts), *more)


def argv(lab: Lab, component: str) -> tuple[str, ...]:
    return operator.processes(lab, "cp1")[component][2:]


def attributes(lab: Lab) -> dict[str, str]:
    """Mode and owner of each file of this module, by its path."""
    told = lab.run("cp1", f"find {FOLDER} -type f -printf '%p %m %U:%G\\n'").stdout
    return {path: rest for path, _, rest in (line.partition(" ") for line in told.splitlines())}


@dataclass(frozen=True)
class Before:
    """The files of the control plane, mode and owner of those that this module changes, and kubeadm's configuration."""

    files: dict[str, str]
    attributes: dict[str, str]
    stored: str

    @classmethod
    def of(cls, lab: Lab) -> Before:
        return cls(operator.files(lab, "cp1"), attributes(lab), stored(lab))


@pytest.fixture(scope="module")
def before(lab: Lab) -> Iterator[Before]:
    """What is there, with a file of somebody else; the module leaves it so."""
    wait_for(lambda: {MANAGER, SCHEDULER} <= set(operator.processes(lab, "cp1")), "the control plane")
    mode, owner = THEIRS.split()
    lab.run("cp1", f"mkdir -p {FOLDER} && echo '# theirs' >{AUDIT} && chmod {mode} {AUDIT} && chown {owner} {AUDIT}")
    found = Before.of(lab)
    assert found.attributes == {AUDIT: THEIRS}
    yield found
    if Before.of(lab) == found:
        lab.run("cp1", f"rm -rf {FOLDER}")
        operator.forget(lab)
    else:
        lab.reset()
