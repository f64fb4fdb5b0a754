"""Writing a ConfigMap: under the version that was read, retried if others write too, and never with old content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from roles.engine import timeouts
from roles.engine.api import Forbidden, NoApi
from roles.engine.context import Fields
from roles.engine.kubeadm_config import GATES, KEYS, KUBELET, plan
from roles.engine.kubeadm_config.write import NotWritten, write
from roles.engine.objects import Session
from roles.engine.objects.session import CONFLICTS, PAUSE
from tests.context import context
from tests.unit.apiserver import LOST, Server
from tests.unit.clock import Clock
from tests.unit.kubeadm_config.world import KUBELET_TEXT, item

PATH = "/api/v1/namespaces/kube-system/configmaps/kubelet-config"
WANTED = {(GATES, "New"): True}


class Stored(Server):
    """The kubelet's ConfigMap. `before` and `after` are called at each write."""

    def __init__(self) -> None:
        super().__init__({PATH: item(KUBELET, KUBELET_TEXT)})
        self.versions = 7
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    @property
    def writes(self) -> int:
        return self.log.count(("APPLY", PATH))

    @property
    def text(self) -> str:
        return str(self.objects[PATH]["data"][KEYS[KUBELET]])

    def change(self, text: str, manager: str = "somebody") -> None:
        found = self.objects[PATH]
        found["metadata"].setdefault("managedFields", []).append({"manager": manager})
        found["data"][KEYS[KUBELET]] = text
        self.put(PATH, found)

    def _turn(self, when: str, verb: str, path: str) -> None:
        if verb == "APPLY":
            self.before() if when == "before" else self.after()

    def _merged(self, path: str, manifest: Mapping[str, Any], there: dict[str, Any] | None) -> dict[str, Any]:
        assert self.forced and {"uid", "resourceVersion"} < manifest["metadata"].keys() and set(manifest["data"]) == {KEYS[KUBELET]}
        self.change(manifest["data"][KEYS[KUBELET]], "daytwo")
        return self.objects[PATH]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(timeouts, "time", Clock())
    yield
    timeouts.set_factor([])


def edit(data: bytes) -> plan.Edited:
    return plan.edit(KUBELET, data, WANTED)


def done(server: Stored, noted: list[Fields]) -> str:
    return write(Session(lambda: server.api), KUBELET, edit, context(noted.append))


ADDED = [{"path": [GATES, "New"], "before": None, "after": True}]
WRITTEN = KUBELET_TEXT.replace("  A: true\n", "  A: true\n  New: true\n")


def test_it_is_recorded_written_and_read_back() -> None:
    server, noted = Stored(), list[Fields]()
    server.before = lambda: noted.append(["about to write"])  # type: ignore[list-item]
    assert done(server, noted) == "read back: resourceVersion 8, field manager daytwo"
    assert server.text == WRITTEN and noted == [ADDED, ["about to write"]], "recorded before it was written"
    noted.clear()
    assert done(server, noted) == "read back: it has the values already"
    assert server.writes == 1 and noted == []


def test_what_others_wrote_meanwhile_stays() -> None:
    server, noted = Stored(), list[Fields]()

    def meanwhile() -> None:
        if server.writes < 3:
            server.change(server.text.replace("50Mi", f"5{server.writes}Mi"))

    server.before = meanwhile
    done(server, noted)
    assert server.writes == 3 and server.text == WRITTEN.replace("50Mi", "51Mi") and noted == [ADDED]


def test_the_record_has_the_values_from_right_before_the_write() -> None:
    server, noted = Stored(), list[Fields]()
    server.before = lambda: server.change(WRITTEN.replace("New: true", "New: false")) if server.writes == 1 else None
    done(server, noted)
    assert server.text == WRITTEN and noted == [ADDED, [{"path": [GATES, "New"], "before": False, "after": True}]]


@pytest.mark.parametrize("error", LOST)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_was_lost(error: Exception, when: str) -> None:
    server, noted = Stored(), list[Fields]()

    def lose() -> None:
        if server.writes == 1:
            raise error

    setattr(server, when, lose)
    assert "field manager daytwo" in done(server, noted)
    assert server.writes == (1 if when == "after" else 2), "an applied request is not repeated"
    assert noted == [ADDED] and server.text == WRITTEN


def test_a_write_that_is_never_answered_is_unknown() -> None:
    server = Stored()

    def lose() -> None:
        raise NoApi("no answer")

    server.before = lose
    with pytest.raises(NotWritten, match=r"STATE UNKNOWN: .*kubectl get configmap -n kube-system kubelet-config"):
        done(server, [])


def test_others_that_keep_writing() -> None:
    server = Stored()
    server.before = lambda: server.change(server.text)
    with pytest.raises(NotWritten, match="others keep changing it"):
        done(server, [])
    assert server.text == KUBELET_TEXT


def test_a_slow_cluster_gets_more_time_for_writes_of_others() -> None:
    tries = []
    for factor in (1, 4):
        timeouts.set_factor([factor])
        server = Stored()
        server.before = lambda server=server: server.change(server.text)  # type: ignore[misc]
        with pytest.raises(NotWritten, match="others keep changing it"):
            done(server, [])
        tries.append(server.writes)
    assert tries == [CONFLICTS / PAUSE + 1, 4 * CONFLICTS / PAUSE + 1]


def test_a_value_that_is_changed_at_once_is_not_proven() -> None:
    server = Stored()
    server.after = lambda: server.change(KUBELET_TEXT)
    with pytest.raises(NotWritten, match=r"featureGates\.New differs when read back"):
        done(server, [])


def test_no_record_no_write() -> None:
    server = Stored()

    def full(fields: Fields) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write(Session(lambda: server.api), KUBELET, edit, context(full))
    assert server.writes == 0 and server.text == KUBELET_TEXT


def test_what_cannot_be_written_is_reported() -> None:
    server = Stored()

    def refuse() -> None:
        raise Forbidden("cp1", "/", "403 Forbidden: RBAC", "grant it")

    server.before = refuse
    with pytest.raises(Forbidden, match="RBAC"):
        done(server, [])
    del server.objects[PATH]
    with pytest.raises(NotWritten, match="kube-system/kubelet-config is gone"):
        done(server, [])
    server.objects[PATH] = item(KUBELET, None)
    with pytest.raises(NotWritten, match="no key kubelet"):
        done(server, [])
    server.objects[PATH] = item(KUBELET, "kind: [")
    with pytest.raises(NotWritten, match="ConfigMap kube-system/kubelet-config"):
        done(server, [])
