"""How signs are read: one command on the node, statuses of endpoints, and the wait for what comes a moment later."""

from __future__ import annotations

import subprocess
from typing import Any, cast

import pytest

from roles.engine.api.errors import by_status
from roles.engine.bridge import Remote
from roles.engine.proof import Cluster, evidence
from roles.engine.proof.evidence import ProcessLook, kubelet_address, look_at
from roles.engine.remote import Answer, RemoteError


class Local:
    """This machine as a node: counts its commands."""

    name = "w1"
    transport = None

    def __init__(self, fails: bool = False) -> None:
        self.scripts: list[str] = []
        self.fails = fails

    def run(self, script: str, *, stdin: str, timeout: float) -> Answer:
        if self.fails:
            raise RemoteError("w1: it does not answer")
        self.scripts.append(stdin)
        done = subprocess.run(["sh", "-s"], input=stdin, text=True, capture_output=True, check=True)
        return Answer(done.returncode, done.stdout.splitlines(), [])


class Api:
    def __init__(self, statuses: dict[str, int]) -> None:
        self.statuses = statuses

    def get_raw(self, path: str) -> bytes:
        status = self.statuses.get(path.rpartition("/proxy")[2], 200)
        if status != 200:
            raise by_status("cp1", path, status, b"x")
        return b"{}"


class Kubelet(Cluster):
    """A kubelet whose node has what is asked for only at the last of its `looks`."""

    def __init__(self, running: dict[str, Any], statuses: dict[str, int] | None = None, looks: int = 1) -> None:
        super().__init__()
        self.running, self.statuses, self.looks = running, statuses or {}, looks

    def configuration(self, node_name: str) -> dict[str, Any]:
        return self.running

    def query(self, ask: Any, at: Any = None) -> Any:
        return ask(Api(self.statuses))

    def node(self, node_name: str) -> dict[str, Any]:
        self.looks -= 1
        pods = "78" if self.looks <= 0 else "110"
        return {
            "status": {"capacity": {"cpu": "2", "memory": "1Gi", "pods": pods}, "allocatable": {"cpu": "2", "memory": "1Gi", "pods": pods}}
        }


def look(running: dict[str, Any], local: Local, **more: Any) -> ProcessLook:
    return ProcessLook(Kubelet(running, **more), cast(Remote, local), "kubelet", "self", "w1", (), None)


def kinds(of: ProcessLook, *names: str) -> list[str]:
    return [found.kind for _, found in look_at(of, names, "", {})]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "sleep", lambda seconds: None)


def test_all_signs_of_a_node_are_one_command() -> None:
    local = Local()
    assert kinds(look({"maxOpenFiles": 1, "oomScoreAdj": 1}, local), "maxOpenFiles", "oomScoreAdj") == ["missing", "missing"]
    assert len(local.scripts) == 1 and "oom_score_adj" in local.scripts[0] and "inhibit" not in local.scripts[0]


def test_a_sign_that_needs_nothing_of_the_node_runs_nothing_there() -> None:
    local = Local()
    assert kinds(look({"maxPods": 78}, local), "maxPods") == ["shown"] and local.scripts == []


def test_a_sign_may_come_a_moment_later() -> None:
    assert kinds(look({"maxPods": 78}, Local(), looks=3), "maxPods") == ["shown"]


def test_a_node_that_does_not_answer_proves_nothing_and_reverts_nothing() -> None:
    assert kinds(look({"oomScoreAdj": 5}, Local(fails=True)), "oomScoreAdj") == ["unknown"]


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "missing"), (405, "shown"), (404, "shown"), (403, "unknown"), (401, "unknown"), (503, "unknown")]
)
def test_an_endpoint_by_its_status(status: int, kind: str) -> None:
    off = look({"enableProfilingHandler": False}, Local(), statuses={"/debug/pprof/": status})
    assert kinds(off, "enableProfilingHandler") == [kind]


def test_without_ssh_no_handshake_is_tried() -> None:
    assert kinds(look({"tlsMinVersion": "VersionTLS13"}, Local()), "tlsMinVersion") == ["unknown"]


def test_where_a_kubelet_serves() -> None:
    assert kubelet_address({}) == kubelet_address({"address": "0.0.0.0", "port": 10250}) == ("127.0.0.1", 10250)
    assert kubelet_address({"address": "192.0.2.7", "port": 1}) == ("192.0.2.7", 1)
