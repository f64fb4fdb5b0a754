"""The objects of a metrics-server before the real API server, in a shadow control plane: no host, and nothing that serves metrics."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from roles.engine.api import Api, errors
from roles.engine.kube import Object
from roles.engine.objects import Session
from roles.engine.transaction import ChangedField, ChangedObject, ObjectsRecord
from roles.metrics_server import ServerWriter, _live, facts, health, objects, plan_objects, plan_undo
from roles.metrics_server.manifests import DEPLOYMENT_PATH, WantedServer
from roles.metrics_server.model import MetricsServer
from roles.metrics_server.plan import ServerChange
from tests.context import context
from tests.integration.shadow import Shadow, shadow
from tests.lab import binaries

pytestmark = [pytest.mark.slow, pytest.mark.binaries]

SERVER = MetricsServer(image="registry.local/metrics-server:v0.9.0")
TWO, ONE = objects(SERVER, 2, 3), objects(MetricsServer(image="registry.local/metrics-server:v0.9.1"), 1, 3)


class ShadowApi(Api):
    """The shadow's API as daytwo asks it."""

    def __init__(self, api: Shadow) -> None:
        super().__init__("cp1")
        self._api = api

    def _get(self, path: str, timeout: float) -> bytes:
        return self._asked("GET", path, None, "application/json")

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        return self._asked(verb, path, body, content)

    def _asked(self, verb: str, path: str, body: bytes | None, content: str) -> bytes:
        headers = {"Content-Type": content}
        try:
            sent = urllib.request.Request(self._api._url + path, body, headers, method=verb)
            with urllib.request.urlopen(sent, context=self._api._context, timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise errors.by_status("cp1", path, error.code, error.read()) from error


def roll_out(api: Shadow, over: threading.Event) -> None:
    """What the Deployment's controller says of a roll-out that succeeds."""
    while not over.wait(0.1):
        try:
            found = api.ask("GET", DEPLOYMENT_PATH)
            count = found["spec"]["replicas"]
            status = {"observedGeneration": found["metadata"]["generation"], "replicas": count, "updatedReplicas": count}
            status |= {"readyReplicas": count, "availableReplicas": count}
            if found.get("status", {}).get("observedGeneration") != status["observedGeneration"]:
                api.ask("PATCH", f"{DEPLOYMENT_PATH}/status", {"status": status}, "application/merge-patch+json")
        except urllib.error.HTTPError:
            continue


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with shadow(tmp_path_factory.mktemp("shadow"), binaries.get(binaries.DEFAULT_VERSION)) as api:
        over = threading.Event()
        controller = threading.Thread(target=roll_out, args=(api, over), daemon=True)
        controller.start()
        yield Session(lambda: ShadowApi(api))
        over.set()
        controller.join()


def live(session: Session) -> dict[str, Object]:
    return _live(session, [one.path for one in TWO])


def planned(session: Session, wanted: list[WantedServer]) -> list[ServerChange]:
    """With the diff of the API server's dry run."""
    plan = plan_objects(wanted, live(session), force=False)
    assert plan.refusals == []
    return [
        replace(one, shown=session.asked(partial(ServerWriter(session, force=False, seconds=60, serves=False).tried, one)))
        for one in plan.actions
    ]


def done(session: Session, actions: Sequence[ServerChange], *, serves: bool = False) -> ObjectsRecord:
    """As a run carries them out, and the record of it, as a file has it. Raises what a step raises."""
    writer, found = ServerWriter(session, force=False, seconds=3 if serves else 60, serves=serves), []
    for step in writer.steps(actions):
        fields: list[ChangedField] = []

        def begin(given: object, fields: list[ChangedField] = fields) -> None:
            fields += [ChangedField(tuple(one["path"]), one["before"], one["after"]) for one in json.loads(json.dumps(given))]

        assert "read back" in step.write(context(begin))
        found.append(ChangedObject(step.name, step.action, tuple(fields), json.loads(json.dumps(step.about)), "done"))
    return ObjectsRecord("r1", "c1", "metrics_server", {}, tuple(found))


def test_installed_changed_undone_and_removed(session: Session) -> None:
    assert facts.read_installed(session) is None and "no metrics API" in health.look(session).problems[0]
    actions = planned(session, TWO)
    assert [one.what for one in actions] == ["create"] * len(TWO) and all(one.shown for one in actions)
    installing = done(session, actions)
    assert planned(session, TWO) == [] and facts.read_installed(session) is None

    # One replica: what only two have is removed, and comes back with the undo.
    actions = planned(session, ONE)
    assert [(one.what, one.kind.name) for one in actions] == [("update", "Deployment"), ("remove", "PodDisruptionBudget")]
    assert "-      affinity:" in actions[0].shown and "+        image: registry.local/metrics-server:v0.9.1" in actions[0].shown
    changing = done(session, actions)
    assert planned(session, ONE) == []
    back = plan_undo(changing, live(session), force=False)
    assert back.refusals == []
    done(session, back.actions)
    assert planned(session, TWO) == []

    gone = plan_undo(installing, live(session), force=False)
    assert [one.kind.name for one in gone.actions][:2] == ["APIService", "Deployment"]
    done(session, gone.actions)
    assert live(session) == {}


def test_an_api_service_that_does_not_work_is_removed_again(session: Session) -> None:
    with pytest.raises(Exception, match=r"it does not work after 3 s: its APIService is not available.*what this run created is removed"):
        done(session, planned(session, TWO), serves=True)
    left = live(session)
    assert len(left) == len(TWO) - 1 and not any("apiservices" in path for path in left)
