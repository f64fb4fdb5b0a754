"""A control-plane node whose manifests have company: nobody is locked out by it, and no file is touched but a component's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.integration import operator
from tests.integration.operator import COMPONENTS, GATE, MANIFESTS, data, pyinfra, wait_for
from tests.lab import Lab, layouts

pytestmark = pytest.mark.lab

NODE = "cp1"
# One of each: what a plan says of the directory, however much there is.
WARNING = (
    rf"{MANIFESTS}: daytwo does not understand these files as manifests, and leaves them as they are: README \(.*empty\.yaml \(is empty.*, "
    r"gone\.yaml \(is a link.*old \(is a directory\), several\.yaml \(.*several YAML documents"
)


@pytest.fixture(scope="module", autouse=True)
def company(lab: Lab) -> Iterator[None]:
    layouts.keep_company(lab, NODE)
    wait_for(lambda: layouts.company_is_whole(lab, NODE), f"the company of {NODE} to run")
    yield
    layouts.take_back(lab, NODE)
    wait_for(lambda: layouts.company_is_gone(lab, NODE), f"the manifests of {NODE} to be as before")
    operator.forget(lab)


def _containers(lab: Lab) -> dict[str, tuple[int, str]]:
    """Of each static pod: how often its container was started again, and which one it is."""
    told = lab.kubectl("get", "pods", "-n", "kube-system", "--field-selector", f"spec.nodeName={NODE}", "-o", "json")
    states = {item["metadata"]["name"]: item["status"]["containerStatuses"][0] for item in json.loads(told)["items"]}
    return {name: (state["restartCount"], state["containerID"]) for name, state in states.items()}


def test_status_and_checks_tell_of_it_and_of_the_rest(lab: Lab) -> None:
    before = operator.files(lab, NODE)
    status = pyinfra("status", "-y")
    assert status.code == 0, status.all
    assert re.search(rf"^{NODE}: {WARNING}", status.out, re.MULTILINE), status.out
    for name in COMPONENTS:
        assert re.search(rf"^{NODE} .*{name} .*{MANIFESTS}/{name}\.yaml$", status.out, re.MULTILINE), status.out

    checks = pyinfra("checks", "-y", "--limit", NODE)
    rows = dict(re.findall(rf"^{NODE} +([a-z-]+) +(pass|FAIL|UNKNOWN|skip)\b", checks.out, re.MULTILINE))
    # What lies there is named; that the control plane is well is seen all the same.
    assert {check for check, outcome in rows.items() if outcome in ("FAIL", "UNKNOWN")} == {"manifests-clean", "manifests-pods"}, checks.out
    assert rows["control-plane-runs"] == "pass" and all(rows[f"{name}-healthy"] == "pass" for name in COMPONENTS), checks.out
    assert operator.files(lab, NODE) == before


def test_a_gate_is_changed_in_the_components_own_file_and_put_back(lab: Lab) -> None:
    before, others = operator.files(lab, NODE), _containers(lab)
    wish = data(feature_gates=f"{GATE}=true", only=NODE, components="kube-scheduler")
    on = pyinfra("feature_gates", "-y", *wish)
    assert on.code == 0, on.all
    assert len(re.findall(WARNING, on.plan)) == 1, on.plan
    changed = operator.files(lab, NODE)
    assert {path for path in {*before, *changed} if before.get(path) != changed.get(path)} == {layouts.SCHEDULER}
    assert operator.gates_of(operator.processes(lab, NODE)["kube-scheduler"]) == f"{GATE}=true"
    again = pyinfra("feature_gates", "-y", *wish)
    assert again.code == 0 and "0 changes on 0 nodes" in again.out, again.all

    back = pyinfra("rollback", "-y", brief=True)
    assert back.code == 0, back.all
    assert operator.files(lab, NODE) == before
    now = _containers(lab)
    assert {name for name in {*others, *now} if others.get(name) != now.get(name)} == {f"kube-scheduler-{NODE}"}


def test_a_backup_of_a_manifest_keeps_only_that_component_from_a_change(lab: Lab) -> None:
    """It is a second file of the same pod, with the same content: which one counts is not clear, and nobody guesses."""
    backup = f"{layouts.SCHEDULER}~"
    lab.run(NODE, f"cp -a {layouts.SCHEDULER} /root/new-manifest && mv /root/new-manifest {backup}")
    try:
        before = operator.files(lab, NODE)
        refused = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", only=NODE))
        assert refused.code == 1 and "both define a kube-scheduler" in refused.all and "Traceback" not in refused.all, refused.all
        plan = pyinfra("feature_gates", "--dry", *data(feature_gates=f"{GATE}=true", only=NODE, components="kubelet,kube-apiserver"))
        assert plan.code == 0 and "kube-scheduler is left as it is" in plan.plan, plan.all
        # The API server's manifest ends in a document marker, and the new line stands in front of it.
        assert re.search(rf"^ *\+ +- --feature-gates={GATE}=true$", plan.plan, re.MULTILINE), plan.plan
        assert operator.files(lab, NODE) == before
    finally:
        lab.run(NODE, f"rm {backup}")
    # The kubelet may have ended the pod with its file; the one that stays makes it again.
    wait_for(lambda: layouts.company_is_whole(lab, NODE), "the scheduler to be back")
