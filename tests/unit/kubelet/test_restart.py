"""What a restart of a kubelet brings: what its files say otherwise than the process runs with, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.kubelet import Kubelet, ask, find, kubelet_plan, pending, schema
from tests.unit.kubelet import samples
from tests.unit.kubelet.samples import MAIN, kubelet, written
from tests.unit.node import node
from tests.unit.node.node import parse

RUNNING: dict[str, Any] = {
    "maxPods": 110,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "systemReserved": {"cpu": "2", "memory": "1Gi"},
    "syncFrequency": "1m0s",
    "cgroupDriver": "cgroupfs",
    "clusterDNS": ["10.0.0.10"],
    "featureGates": {"A": True, "B": False},
    "serializeImagePulls": True,
    "eventRecordQPS": 50,
    "registryBurst": 10,
    "podPidsLimit": 1024,
}


def younger(found: Kubelet) -> Kubelet:
    """The same, with its configuration file written after its start."""
    started = int(found.seen.started_at(found.process))
    files = {path: replace(file, mtime=started + (60 if path == MAIN else -60)) for path, file in found.seen.files.items()}
    return replace(found, seen=replace(found.seen, files=files))


@pytest.mark.parametrize(
    ("main", "extra", "told"),
    [
        ("", "", None),
        ("maxPods: 110\nsyncFrequency: 60s\nclusterDNS: [10.0.0.10]\nfeatureGates: {A: true}\n", "", None),
        # kubeadm writes these for "not set"; the runtime tells the driver; the kubelet adds its defaults to a map.
        ("syncFrequency: 0s\ncgroupDriver: systemd\nlogging: {verbosity: 3}\nevictionHard: {memory.available: 100Mi}\n", "", None),
        (
            "",
            "--max-pods=110 --sync-frequency=60s --system-reserved=memory=1024Mi,cpu=2000m --eviction-hard=nodefs.available<10%,memory.available<100Mi",
            None,
        ),
        ("maxPods: 200\n", "", "maxPods is 200 in its files, but the kubelet runs with 110"),
        ("maxPods: 110\n", "--max-pods=50", "maxPods is 50 in --max-pods, but the kubelet runs with 110"),
        ("evictionHard: {memory.available: 5Gi}\n", "", "evictionHard is"),
        ("systemReserved: {memory: 4Gi}\n", "", "systemReserved is"),
        ("podsPerCore: 5\n", "", "podsPerCore is 5 in its files, but the kubelet runs with (not set)"),
        ("featureGates: {B: true}\n", "", "featureGates is"),
        ("staticPodURLHeader: {X: [abc]}\n", "", "staticPodURLHeader is (a secret)"),
        # No and 0 are values, but where a kubelet cannot tell them from none.
        ("serializeImagePulls: false\n", "", "serializeImagePulls is false in its files, but the kubelet runs with true"),
        ("eventRecordQPS: 0\n", "", "eventRecordQPS is 0 in its files, but the kubelet runs with 50"),
        ("maxPods: 0\nregistryBurst: 0\nclusterDNS: []\n", "", None),
        ("podsPerCore: 0\nprotectKernelDefaults: false\nclusterDomain: ''\n", "", None),
    ],
)
def test_what_a_restart_brings(main: str, extra: str, told: str | None) -> None:
    found = [*map(str, pending.pending_settings(kubelet(main, extra=extra), RUNNING))]
    assert (not found) if told is None else (len(found) == 1 and found[0].startswith(told)), found
    assert "abc" not in str(found)


def test_reserved_cpus_are_no_edit_of_somebody_s() -> None:
    found = kubelet("systemReserved: {cpu: 500m, memory: 1Gi}\nreservedSystemCPUs: 0-1\n")
    assert pending.pending_settings(found, {"systemReserved": {"cpu": "2", "memory": "1Gi"}, "reservedSystemCPUs": "0-1"}) == []
    # It takes cpu out of kubeReserved, and does not show what is empty then.
    found = kubelet("kubeReserved: {cpu: 500m}\nreservedSystemCPUs: 0-1\n")
    assert pending.pending_settings(found, {"reservedSystemCPUs": "0-1"}) == []
    # What else was edited there comes with the cpu of the file.
    found = kubelet("systemReserved: {cpu: 500m, memory: 2Gi}\nreservedSystemCPUs: 0-1\n")
    (one,) = pending.pending_settings(found, {"systemReserved": {"cpu": "2", "memory": "1Gi"}, "reservedSystemCPUs": "0-1"})
    assert one.brought == {"cpu": "500m", "memory": "2Gi"}


def test_what_was_taken_out_of_a_file_is_found_where_the_file_is_younger_than_the_process() -> None:
    """A kubelet fills in what a file leaves out: only a file that it cannot have read tells that something is gone."""
    found = kubelet("clusterDNS: [10.0.0.10]\n")
    running = {**RUNNING, "maxPods": 200, "systemReserved": {"cpu": "1"}, "podsPerCore": 5, "protectKernelDefaults": True}
    assert pending.pending_settings(found, running) == []
    names = {one.name for one in pending.pending_settings(younger(found), running)}
    assert names == {*("evictionHard", "featureGates", "maxPods", "podPidsLimit", "systemReserved", "podsPerCore", "protectKernelDefaults")}
    gone = next(one for one in pending.pending_settings(younger(found), running) if one.name == "maxPods")
    assert gone.value == 110 and gone.now == 200


def test_defaults_are_nothing_that_a_restart_brings() -> None:
    """Every field at its default, not in the file, and the file touched: nothing differs."""
    found = younger(kubelet())
    running: dict[str, Any] = {}
    for name, known in schema.fields(found.minor).items():
        if known.default is not None and "[]" not in name:
            parent = running
            *parts, last = name.split(".")
            for part in parts:
                parent = parent.setdefault(part, {})
            parent[last] = known.default
    assert pending.pending_settings(found, {**running, "staticPodPath": "/etc/kubernetes/manifests"}) == []


def test_a_default_that_hangs_on_another_field_is_not_reckoned() -> None:
    found = younger(kubelet("nodeStatusUpdateFrequency: 20s\nmaxParallelImagePulls: 4\n"))
    running = {
        "nodeStatusUpdateFrequency": "20s",
        "nodeStatusReportFrequency": "20s",
        "maxParallelImagePulls": 4,
        "serializeImagePulls": False,
    }
    names = {one.name for one in pending.pending_settings(found, running)}
    assert not names & {"nodeStatusReportFrequency", "serializeImagePulls"}


@given(st.sampled_from(samples.every(36)))
def test_what_runs_as_the_file_has_it_is_never_pending(sample: tuple[str, Any]) -> None:
    path, value = sample
    if "[]" in path or path == "staticPodPath" or path.startswith("featureGates"):
        return
    name = path.partition(".")[0]
    content = samples.nested(path, value)
    found = kubelet(written({name: content[name]}) if content[name] != {} else "")
    assert [one for one in pending.pending_settings(found, content) if one.name == path] == []


@pytest.mark.parametrize(("main", "merged"), [("evictionHard: {memory.available: 1Gi}\n", False), ("", None)])
def test_thresholds_of_the_file_drop_the_defaults_it_leaves_out(main: str, merged: bool | None) -> None:
    one = pending.pending_settings(kubelet(main or "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Gi}\n"), RUNNING)
    (hard,) = [found for found in one if found.name == "evictionHard"]
    expected = {"memory.available": "1Gi"} if merged is False else {"memory.available": "1Gi", "nodefs.available": "10%"}
    assert hard.brought == expected
    (dropin,) = [
        found
        for found in pending.pending_settings(kubelet("", {"10-a.conf": "evictionHard: {memory.available: 1Gi}\n"}), RUNNING)
        if found.name == "evictionHard"
    ]
    assert dropin.brought == {"memory.available": "1Gi", "nodefs.available": "10%"}


def test_a_driver_that_somebody_has_written_by_hand_is_compared() -> None:
    """The container runtime may have set another one than the file: only a younger file, or a kubelet before 1.35, tells that it is new."""
    found = kubelet("cgroupDriver: systemd\n")
    (text,) = map(str, pending.pending_settings(younger(found), {"cgroupDriver": "cgroupfs"}))
    assert text == "cgroupDriver is systemd in its files, but the kubelet runs with cgroupfs"
    assert pending.pending_settings(found, {"cgroupDriver": "cgroupfs"}) == []
    assert pending.pending_settings(younger(kubelet()), {"cgroupDriver": "systemd"}) == []
    older = find(found.seen.with_versions({found.process.pid: "v1.34.2"}))
    assert [one.name for one in pending.pending_settings(older, {"cgroupDriver": "cgroupfs"})] == ["cgroupDriver"]


def test_what_is_not_compared_is_told_where_its_file_is_younger() -> None:
    found = kubelet("logging: {verbosity: 5}\nregisterWithTaints: [{key: a, effect: NoSchedule}]\nmaxPods: 110\n")
    assert kubelet_plan.warnings(found) == []
    assert kubelet_plan.warnings(younger(found)) == [
        f"{MAIN} was written after the kubelet had started; a restart applies its values of logging, registerWithTaints"
    ]


def test_what_it_reads_once_and_somebody_has_written_since() -> None:
    plain = find(parse("n1", node.answer(style="plain", argv=(*node.PLAIN_ARGV, "--image-credential-provider-config=/etc/creds.yaml"))))
    made = find(parse("n1", node.answer()))  # with --bootstrap-kubeconfig
    started = int(plain.seen.started_at(plain.process))

    def told(found: Kubelet, path: str, after: int) -> list[str]:
        return ask.rewritten_files(found, [f"written {started + after} {node.b64(path)}="])

    (text,) = told(plain, "/etc/kubernetes-node/kubeconfig", 60)
    assert (
        "/etc/kubernetes-node/kubeconfig was written after the kubelet had started" in text and "no revert brings the old one back" in text
    )
    assert "credentials of registries" in told(plain, "/etc/creds.yaml", 2)[0]
    assert told(plain, "/etc/kubernetes-node/kubeconfig", -60) == told(plain, "/etc/passwd", 60) == []
    assert told(made, "/etc/kubernetes/kubelet.conf", 60) == [] and told(made, "/etc/kubernetes/kubelet.conf", 1000)
    assert "written /etc/creds.yaml" in ask.ask_kubelet(plain, plain.process.argv, {})


def test_the_table_of_what_it_reads_once() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/how-it-works.md").read_text()
    assert dict(re.findall(r"(?m)^ +\| `--([^`]+)` \| ([^|]+) \|$", page)) == pending.READ_ONCE
