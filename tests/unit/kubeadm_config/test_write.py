"""Writing a ConfigMap: under the version that was read, retried if others write too, and never with old content."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from roles.engine import timeouts
from roles.engine.api import Conflict, Forbidden, NotFound
from roles.engine.api.errors import Timeout
from roles.engine.context import Fields
from roles.engine.kubeadm_config import GATES, KEYS, KUBELET, plan
from roles.engine.kubeadm_config.write import NotWritten, write
from roles.engine.objects import Session
from roles.engine.objects.session import CONFLICTS, PAUSE
from tests.context import context
from tests.unit.clock import Clock
from tests.unit.kubeadm_config.world import KUBELET_TEXT, item
from tests.unit.priority_classes.apiserver import LOST

WANTED = {(GATES, "New"): True}


class Server:
    """One ConfigMap behind an API: versions, preconditions, managers. `before` is called before each write."""

    host = "cp1"

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = item(KUBELET, KUBELET_TEXT)
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.writes = 0

    @property
    def text(self) -> str:
        assert self.item is not None
        return str(self.item["data"][KEYS[KUBELET]])

    def change(self, text: str, manager: str = "somebody") -> None:
        assert self.item is not None
        meta = self.item["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        meta.setdefault("managedFields", []).append({"manager": manager})
        self.item["data"][KEYS[KUBELET]] = text

    def get_raw(self, path: str, timeout: float = 1, *, wait: float = 0) -> bytes:
        raise AssertionError(path)

    def get_json(self, path: str, timeout: float = 1, *, wait: float = 0) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/kube-system/configmaps/kubelet-config"
        if self.item is None:
            raise NotFound(self.host, path, "404", "")
        return copy.deepcopy(self.item)

    def apply(
        self, path: str, manifest: Mapping[str, Any], timeout: float = 1, *, force: bool = False, dry_run: bool = False, wait: float = 0
    ) -> dict[str, Any]:
        assert force and not dry_run and self.item is not None
        self.writes += 1
        self.before()
        meta = manifest["metadata"]
        if any(meta[key] != self.item["metadata"][key] for key in ("name", "uid", "resourceVersion")):
            raise Conflict(self.host, path, "409", "run it again")
        assert set(manifest["data"]) == {KEYS[KUBELET]}
        self.change(manifest["data"][KEYS[KUBELET]], "daytwo")
        self.after()
        return self.item

    def delete(self, path: str, uid: str, timeout: float = 1, *, version: str = "", dry_run: bool = False) -> None:
        raise AssertionError(path)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(timeouts, "time", Clock())
    yield
    timeouts.set_factor([])


def edit(data: bytes) -> plan.Edited:
    return plan.edit(KUBELET, data, WANTED)


def done(server: Server, noted: list[Fields]) -> str:
    return write(Session(lambda: server), KUBELET, edit, context(noted.append))


ADDED = [{"path": [GATES, "New"], "before": None, "after": True}]
WRITTEN = KUBELET_TEXT.replace("  A: true\n", "  A: true\n  New: true\n")


def test_it_is_recorded_written_and_read_back() -> None:
    server, noted = Server(), list[Fields]()
    server.before = lambda: noted.append(["about to write"])  # type: ignore[list-item]
    assert done(server, noted) == "read back: resourceVersion 8, field manager daytwo"
    assert server.text == WRITTEN and noted == [ADDED, ["about to write"]], "recorded before it was written"
    noted.clear()
    assert done(server, noted) == "read back: it has the values already"
    assert server.writes == 1 and noted == []


def test_what_others_wrote_meanwhile_stays() -> None:
    server, noted = Server(), list[Fields]()

    def meanwhile() -> None:
        if server.writes < 3:
            server.change(server.text.replace("50Mi", f"5{server.writes}Mi"))

    server.before = meanwhile
    done(server, noted)
    assert server.writes == 3 and server.text == WRITTEN.replace("50Mi", "51Mi") and noted == [ADDED]


def test_the_record_has_the_values_from_right_before_the_write() -> None:
    server, noted = Server(), list[Fields]()
    server.before = lambda: server.change(WRITTEN.replace("New: true", "New: false")) if server.writes == 1 else None
    done(server, noted)
    assert server.text == WRITTEN and noted == [ADDED, [{"path": [GATES, "New"], "before": False, "after": True}]]


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_was_lost(error: Exception, when: str) -> None:
    server, noted = Server(), list[Fields]()

    def lose() -> None:
        if server.writes == 1:
            raise error

    setattr(server, when, lose)
    assert "field manager daytwo" in done(server, noted)
    assert server.writes == (1 if when == "after" else 2), "an applied request is not repeated"
    assert noted == [ADDED] and server.text == WRITTEN


def test_a_write_that_is_never_answered_is_unknown() -> None:
    server = Server()

    def lose() -> None:
        raise Timeout(server.host, "/", "no answer", "-")

    server.before = lose
    with pytest.raises(NotWritten, match=r"STATE UNKNOWN: .*kubectl get configmap -n kube-system kubelet-config"):
        done(server, [])


def test_others_that_keep_writing() -> None:
    server = Server()
    server.before = lambda: server.change(server.text)
    with pytest.raises(NotWritten, match="others keep changing it"):
        done(server, [])
    assert server.text == KUBELET_TEXT


def test_a_slow_cluster_gets_more_time_for_writes_of_others() -> None:
    tries = []
    for factor in (1, 4):
        timeouts.set_factor([factor])
        server = Server()
        server.before = lambda server=server: server.change(server.text)  # type: ignore[misc]
        with pytest.raises(NotWritten, match="others keep changing it"):
            done(server, [])
        tries.append(server.writes)
    assert tries == [CONFLICTS / PAUSE + 1, 4 * CONFLICTS / PAUSE + 1]


def test_a_value_that_is_changed_at_once_is_not_proven() -> None:
    server = Server()
    server.after = lambda: server.change(KUBELET_TEXT)
    with pytest.raises(NotWritten, match=r"featureGates\.New differs when read back"):
        done(server, [])


def test_no_record_no_write() -> None:
    server = Server()

    def full(fields: Fields) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write(Session(lambda: server), KUBELET, edit, context(full))
    assert server.writes == 0 and server.text == KUBELET_TEXT


def test_what_cannot_be_written_is_reported() -> None:
    server = Server()

    def refuse() -> None:
        raise Forbidden(server.host, "/", "403 Forbidden: RBAC", "grant it")

    server.before = refuse
    with pytest.raises(Forbidden, match="RBAC"):
        done(server, [])
    server.item = None
    with pytest.raises(NotWritten, match="kube-system/kubelet-config is gone"):
        done(server, [])
    server.item = item(KUBELET, None)
    with pytest.raises(NotWritten, match="no key kubelet"):
        done(server, [])
    server.item = item(KUBELET, "kind: [")
    with pytest.raises(NotWritten, match="ConfigMap kube-system/kubelet-config"):
        done(server, [])
