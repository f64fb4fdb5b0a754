"""How requests are retried, and reads are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gevent
import pytest

from roles.engine.api import Api, ApiConnectionLost, Forbidden, NoApi
from roles.engine.api.errors import Invalid, Unreachable
from roles.engine.objects import Session, session
from roles.pod_resize import write
from roles.pod_resize.write import Watcher
from tests.unit.pod_resize.world import pod


class Scripted:
    """An Api whose GETs return the answers of the script in order; the last one forever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        self.asked.append(path)
        gevent.sleep(0.01)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return cast("dict[str, Any]", answer)


def line(api: Scripted, connects: Callable[[], Any] | None = None, wait: float = 600) -> Session:
    return Session(cast("Callable[[], Api]", connects or (lambda: api)), wait)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "LOOK_AGAIN", 0.05)
    monkeypatch.setattr(session, "PAUSE", 0.05)


def unreachable() -> Unreachable:
    return Unreachable("cp1", "/", "nothing answers", "look there")


def test_a_temporary_error_is_retried_over_a_new_connection() -> None:
    api = Scripted(unreachable(), ApiConnectionLost("cp1", "/", "gone", "again"), {"a": 1})
    made = []
    found = line(api, lambda: made.append(1) or api)
    assert found.asked(lambda one: one.get_json("/x")) == {"a": 1}
    assert len(made) == 3 and found.calls == {"look": 3}


def test_one_connection_as_long_as_it_answers() -> None:
    api, made = Scripted({}), []
    found = line(api, lambda: made.append(1) or api)
    for _ in range(5):
        found.asked(lambda one: one.get_json("/x"))
    assert len(made) == 1


def test_a_permanent_error_is_raised_at_once() -> None:
    for error in (Invalid("cp1", "/", "bad", "fix it"), Forbidden("cp1", "/", "403", "use others")):
        api = Scripted(error)
        with pytest.raises(type(error)):
            line(api).asked(lambda one: one.get_json("/x"), "patch")
        assert len(api.asked) == 1


def test_a_server_that_comes_back_says_403_for_a_moment() -> None:
    api = Scripted(unreachable(), Forbidden("cp1", "/", "403", "use others"), {"a": 1})
    assert line(api).asked(lambda one: one.get_json("/x")) == {"a": 1}


def test_patience_ends() -> None:
    with pytest.raises(Unreachable):
        line(Scripted(unreachable()), wait=0.2).asked(lambda one: one.get_json("/x"))

    def no_api() -> Any:
        raise NoApi("no control plane")

    with pytest.raises(NoApi):
        line(Scripted({}), no_api, wait=0.2).asked(lambda one: one.get_json("/x"))


def test_many_wait_for_one_read() -> None:
    api = Scripted({"items": [pod()]})
    watcher = Watcher(line(api), "shop", "app=web")
    waiting = [gevent.spawn(watcher.look) for _ in range(50)]
    gevent.joinall(waiting, raise_error=True)
    assert all(set(one.value) == {"u-web-1"} for one in waiting)
    assert len(api.asked) <= 2, "one for the first task, and one for those that came meanwhile"
    assert "labelSelector=app%3Dweb" in api.asked[0] and "/namespaces/shop/pods" in api.asked[0]


def test_a_read_is_never_older_than_its_call() -> None:
    api = Scripted({"items": [pod()]}, {"items": []})
    watcher = Watcher(line(api), "shop", "")
    assert watcher.look() and not watcher.look()
