"""Control-plane flags on the older minor: the same story as test_control_plane_flags.py, kept in both forms of kubeadm's configuration."""

from __future__ import annotations

import re

import pytest

from roles.engine.editing import cluster_configuration
from tests.integration import flag_files, kubeadm_pods, operator
from tests.integration.flag_files import API, AUDIT, AUDITED, CONFIG, SCHEDULER, Before
from tests.integration.kubeadm_pods import stored
from tests.integration.operator import data, pyinfra
from tests.lab import Lab

# A fixture: pytest finds it by this name.
before = flag_files.before

pytestmark = [pytest.mark.lab, pytest.mark.older, pytest.mark.slow, pytest.mark.usefixtures("older")]


def test_flags_and_files_there_and_in_both_forms_of_kubeadm(lab: Lab, before: Before) -> None:
    values: dict[str, object] = {
        "control_plane_flags": {API: AUDITED, SCHEDULER: {"config": CONFIG}},
        "control_plane_files": {
            AUDIT: {"content": flag_files.POLICY},
            CONFIG: {"content": flag_files.PROFILE, "mode": "0440", "owner": "65534:7"},
        },
    }
    told = flag_files.deploy(**values).ended(0)
    row = re.search(rf"^cp1 +{API} +--event-ttl +absent +2h +confirmed .*$", told.out, re.MULTILINE)
    assert row and f"{AUDIT} in its container; it tells no more" in row.group(), told.out
    assert f"{CONFIG} in its container" in told.out and "LeastAllocated -> MostAllocated" in told.out, told.out
    assert {f"--{name}={value}" for name, value in AUDITED.items()} <= set(flag_files.argv(lab, API))
    assert f"--config={CONFIG}" in flag_files.argv(lab, SCHEDULER)
    assert flag_files.attributes(lab) == {AUDIT: flag_files.THEIRS, CONFIG: "440 65534:7"}
    kept = stored(lab)
    assert kubeadm_pods.rendered(lab, "cp1") == kubeadm_pods.written(lab, "cp1")

    # A cluster that was made by a kubeadm before 1.31: only the ConfigMap lacks the values now.
    old = kubeadm_pods.as_v1beta3(before.stored).replace("scheduler: {}", "scheduler:\n  extraArgs:\n    profiling: 'false' # why")
    processes = operator.processes(lab, "cp1")
    kubeadm_pods.put(lab, old)
    again = flag_files.deploy(**values)
    assert again.code == 0 and "0 changes on 0 nodes, and kubeadm-config" in again.out, again.all
    assert operator.processes(lab, "cp1")[API] == processes[API]
    text = stored(lab)
    assert "    event-ttl: 2h\n" in text and f"    profiling: 'false' # why\n    config: {CONFIG}\n" in text, text
    extras = cluster_configuration.read(text.encode())
    assert extras[API].files == {AUDIT} and extras[SCHEDULER].files == {CONFIG}
    made = kubeadm_pods.rendered(lab, "cp1")
    assert "--profiling=false" in made[SCHEDULER]["spec"]["containers"][0]["command"], made
    made[SCHEDULER]["spec"]["containers"][0]["command"].remove("--profiling=false")
    assert made == kubeadm_pods.written(lab, "cp1")
    undone = pyinfra("rollback", "-y")
    assert undone.code == 0 and stored(lab) == old, undone.all

    kubeadm_pods.put(lab, kept)
    found = re.search(r"Plan of run (\S+):", told.out)
    assert found
    undone = pyinfra("rollback", "-y", *data(run=found.group(1)))
    assert undone.code == 0 and Before.of(lab) == before, undone.all
    assert not any(f"--{name}" in word for word in flag_files.argv(lab, API) for name in AUDITED)
