"""A control-plane node with company among its manifests: it can be looked at, planned for and changed; what is odd is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.operator import GATE, data, pyinfra, wait_for
from tests.lab import Lab
from tests.lab.images import REPOSITORY

pytestmark = pytest.mark.lab
NODE = "cp1"
FOLDER = "/etc/kubernetes/manifests"
STRANGER = "stranger"
# A stranger's static pod under the name that an editor gives to a backup; its container has the name of a component.
POD = f"""apiVersion: v1
kind: Pod
metadata:
  name: {STRANGER}
  namespace: kube-system
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: kube-apiserver
    image: {REPOSITORY}/app:1
    imagePullPolicy: Never
    command: [sleep, "100000"]
---
"""
COMPANY = {"README": "Static pods of this node.\n", "empty.yaml": "", "half.yaml": "kind: Pod\nspec: [\n", f"{STRANGER}.yaml~": POD}


def stranger(lab: Lab) -> str:
    return lab.kubectl("get", "pods", "-n", "kube-system", "-o", "name")


@pytest.fixture(scope="module", autouse=True)
def company(lab: Lab) -> Iterator[None]:
    for name, text in COMPANY.items():
        # Never half a file under a name that the kubelet reads.
        lab.run(NODE, f"cat >'{FOLDER}/.{name}' && mv '{FOLDER}/.{name}' '{FOLDER}/{name}'", input=text)
    wait_for(lambda: f"pod/{STRANGER}-" in stranger(lab), "the stranger's static pod")
    yield
    lab.run(NODE, "rm -f " + " ".join(f"'{FOLDER}/{name}'" for name in COMPANY))
    wait_for(lambda: f"pod/{STRANGER}-" not in stranger(lab), "the end of the stranger's static pod")


def test_a_look_shows_the_whole_control_plane(lab: Lab) -> None:
    told = pyinfra("status", "-y")
    assert told.code == 0, told.all
    for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert f"{FOLDER}/{component}.yaml" in told.out


def test_a_gate_goes_on_and_off_there(lab: Lab) -> None:
    planned = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true"))
    assert planned.code == 0, planned.all
    for name in ("README", "empty.yaml", "half.yaml"):
        assert f"{FOLDER}/{name}" in planned.out and f"move it out of {FOLDER}" in planned.out
    assert f"{STRANGER}.yaml~" not in planned.out
    for wish in ("true", "absent"):
        told = pyinfra("feature_gates", "-y", *data(feature_gates=f"{GATE}={wish}", components="kube-scheduler", only=NODE))
        assert told.code == 0 and "confirmed" in told.out, told.all


def test_a_backup_of_a_manifest_keeps_that_one_from_being_edited_and_no_other(lab: Lab) -> None:
    """A plan alone: a second manifest of a pod is nothing to leave to a kubelet for long."""
    copy = f"{FOLDER}/kube-scheduler.yaml~"
    try:
        lab.run(NODE, f"cp {FOLDER}/kube-scheduler.yaml {FOLDER}/.copy && mv {FOLDER}/.copy '{copy}'")
        refused = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", components="kube-scheduler"))
        # Which of the two the kubelet runs, or that it is about to run another one, differs.
        assert refused.code != 0 and copy in refused.all and "a kube-scheduler" in refused.all, refused.all
        planned = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", components="kubelet"))
        assert planned.code == 0, planned.all
    finally:
        lab.run(NODE, f"rm -f '{copy}'")
        wait_for(
            lambda: lab.run(NODE, "curl -skf https://127.0.0.1:10259/healthz", check=False).stdout == "ok",
            "the scheduler with its manifest",
        )
