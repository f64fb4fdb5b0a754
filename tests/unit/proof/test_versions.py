"""Versions: as the running processes tell them through the API; else as the node's own binaries say, and nobody else's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from roles import control_plane, kubelet
from roles.observe import Process, parse
from roles.proof import Cluster, versions
from roles.rollout.remote import Answer, Remote, RemoteError
from tests.unit.observe import node
from tests.unit.observe.fake import Fake

SCHEDULER = {"manifests": {"kube-scheduler.yaml": node.manifest("kube-scheduler")}, "components": {"kube-scheduler": ("kube-scheduler",)}}


class _Remote:
    name = "n1"


class _Cluster:
    """What an API says: Node objects, and versions by component."""

    def __init__(self, objects: dict[str, Any] | None = None, told: dict[str, str] | None = None) -> None:
        self.objects, self.told = objects or {}, told or {}

    def node_objects(self) -> dict[str, Any]:
        return self.objects

    def version(self, host: str, component: str) -> str | None:
        return self.told.get(component)


def running(**changes: Any) -> versions.Running:
    lines = [line for line in node.answer(**{**SCHEDULER, **changes}) if not line.startswith("version ")]
    found = kubelet.find(parse("n1", lines))
    return versions.Running(cast(Remote, _Remote()), found, control_plane.find(found))


def node_object(*, boot: str = "b00t", beat: float = 1700000000.0, version: str = "v1.36.3") -> dict[str, Any]:
    ready = {"type": "Ready", "lastHeartbeatTime": datetime.fromtimestamp(beat, UTC).isoformat()}
    return {"status": {"nodeInfo": {"bootID": boot, "kubeletVersion": version}, "conditions": [{"type": "MemoryPressure"}, ready]}}


def read(cluster: _Cluster, answer: Answer | Exception | None = None) -> tuple[dict[int, str], bool]:
    """The versions by PID, and whether the node was asked."""
    asked: list[Remote] = []

    def each(remotes: Sequence[Remote], work: Callable[[Remote], Any]) -> Mapping[str, Any]:
        asked.extend(remotes)
        return {remote.name: answer for remote in remotes}

    return versions.read(each, cast(Cluster, cluster), [running()])["n1"], bool(asked)


def test_where_the_api_tells_them_nothing_is_run() -> None:
    assert read(_Cluster({"node": node_object()}, {"kube-scheduler": "v1.36.2+vendor.1"})) == (
        {100: "v1.36.3", 200: "v1.36.2+vendor.1"},
        False,
    )


def test_what_the_api_does_not_tell_the_node_is_asked_for() -> None:
    said = Answer(0, [f"version 200 {node.b64('Kubernetes v1.36.1')}=", "unasked 100 eA==="], [])
    assert read(_Cluster({"node": node_object()}), said) == ({100: "v1.36.3", 200: "v1.36.1"}, True)
    assert read(_Cluster(), RemoteError("lost")) == ({}, True)
    with pytest.raises(ZeroDivisionError):
        read(_Cluster(), ZeroDivisionError())


@pytest.mark.parametrize("told", ["v1.36", "1.36.3", "v1.36.3\x1b]52;c;x", "", "v2.0.0"])
def test_a_version_of_no_known_form_is_none(told: str) -> None:
    assert read(_Cluster({"node": node_object(version=told)}, {"kube-scheduler": told}), Answer(0, [], [])) == ({}, True)
    assert versions.parse([f"version 1 {node.b64(f'Kubernetes {told}')}="]) == {}


@pytest.mark.parametrize(
    ("its_object", "known"),
    [
        (node_object(), "v1.36.3"),
        (node_object(boot="other"), ""),
        (node_object(boot=""), ""),
        # The process of the answers started at 1699999049.5.
        (node_object(beat=1699999049.0), ""),
        (node_object(beat=1699999050.0), ""),
        (node_object(beat=1699999051.0), "v1.36.3"),
        ({"status": {**node_object()["status"], "conditions": []}}, ""),
        ({}, ""),
    ],
)
def test_a_node_object_speaks_for_this_very_process_only(its_object: dict[str, Any], known: str) -> None:
    one = running()
    assert versions.registered(its_object, one.seen, one.kubelet.process) == known


def test_only_pods_of_a_manifest_are_asked() -> None:
    assert "own_component 200" in versions.script(running(), {100: "v1.36.3"})
    assert versions.script(running(), {100: "v1.36.3", 200: "v1.36.3"}) == ""
    one = running()
    stranger = {
        "kube-scheduler": one.components["kube-scheduler"].__class__(
            **{**vars(one.components["kube-scheduler"]), "process": Process("kube-scheduler", 201, 1, (), "", "")}
        )
    }
    assert versions.script(versions.Running(one.remote, one.kubelet, stranger), {100: "v1.36.3"}) == ""


# ---- the script


@pytest.fixture
def machine(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def told(machine: Fake, shell: str = "sh") -> dict[int, str]:
    return versions.parse(machine.run(versions.script(running(), {200: "known"}, machine.proc), shell))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (make lint installs it)")
def test_shellcheck_has_nothing_to_say() -> None:
    script = versions.script(running(), {})
    told = subprocess.run(["shellcheck", "--shell=sh", "--severity=info", "-"], input=script, text=True, capture_output=True, check=False)
    assert told.returncode == 0, told.stdout


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_kubelet_is_asked_for_its_version(machine: Fake, shell: str) -> None:
    machine.kubelet()
    assert told(machine, shell) == {100: "v1.36.3"} and machine.ran == {"kubelet": "--version\n"}


@pytest.mark.parametrize("changes", [{"start": 4999}, {"uid": 1}, {"cgroup": "0::/x.service"}, {"mounts": "mnt:[2]"}])
def test_another_process_by_now_is_not_run(machine: Fake, changes: dict[str, Any]) -> None:
    machine.kubelet(**changes)
    assert told(machine) == {} and machine.ran == {}


def test_no_process_by_now_is_no_error(machine: Fake) -> None:
    assert told(machine) == {}


@pytest.mark.parametrize("what", ["bin", "bin/kubelet"])
def test_a_file_that_others_can_change_is_not_run(machine: Fake, what: str) -> None:
    machine.kubelet()
    (machine.folder / what).chmod(0o777)
    assert told(machine) == {} and machine.ran == {}


def test_the_file_that_runs_counts_not_only_the_one_of_its_name(machine: Fake) -> None:
    """A file that is gone keeps its mode and its owner; the kernel writes " (deleted)" behind its name."""
    was = machine.program("kubelet (deleted)")
    machine.kubelet(exe=was)
    machine.program("kubelet")
    assert told(machine) == {100: "v1.36.3"} and list(machine.ran) == ["kubelet (deleted)"]
    was.chmod(0o757)
    (machine.folder / "traces/kubelet (deleted)").unlink()
    assert told(machine) == {} and machine.ran == {}
