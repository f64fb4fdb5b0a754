"""The connections over which plans and reports read the API: few, kept, and spread over the API servers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from roles.engine.api import Api
from roles.engine.bridge.tasks import AsyncResult

T = TypeVar("T")

#: A server to ask: host and component.
At = tuple[str, str]
#: The API of any control-plane node.
ANY: At = ("", "")
APISERVER = "kube-apiserver"
#: So many connections to all API servers together. Each has one read at a time.
MOST = 8
#: So many reads wait for each connection before there is another one: its channel, TLS and /readyz take as long as a few reads.
WORTH = 4


class KeptConnections:
    """Lends each connection to one question at a time; a question waits for one that is lent.

    `open_at` opens a connection to one server; its second result is False if that is no API server which may answer for the cluster.
    `open_any` opens one to the first of some hosts whose API server is ready. Both raise what they like. `hosts` have an API server. No
    question may ask another one: they could wait for each other.
    """

    def __init__(
        self, hosts: Iterable[str], open_at: Callable[[At], tuple[Api, bool]], open_any: Callable[[Sequence[str], float], Api]
    ) -> None:
        self._hosts = hosts
        self._open_at = open_at
        self._open_any = open_any
        self._count: Counter[At] = Counter()
        self._idle: list[tuple[At, Api]] = []
        self._waiting: deque[tuple[At, AsyncResult[tuple[At, Api] | None]]] = deque()
        self._unfit: set[At] = set()

    def ask(self, question: Callable[[Api], T], at: At = ANY, wait: float = 0.0) -> T:
        """The answer of the server `at`. `wait` is for `open_any`. A connection whose question failed is not used again."""
        server, api = self._take(at, wait)
        try:
            answer = question(api)
        except BaseException:
            self._gone(server)
            raise
        self._give(server, api)
        return answer

    def _fits(self, server: At, at: At) -> bool:
        return server == at or (at == ANY and server[1] == APISERVER and server not in self._unfit)

    def _take(self, at: At, wait: float) -> tuple[At, Api]:
        while True:
            if found := next((one for one in self._idle if self._fits(one[0], at)), None):
                self._idle.remove(found)
                return found
            if self._worth_another(at):
                return self._opened(at, wait)
            if (given := self._in_turn(at)) is not None:
                return given

    def _in_turn(self, at: At) -> tuple[At, Api] | None:
        turn: AsyncResult[tuple[At, Api] | None] = AsyncResult()
        self._waiting.append((at, turn))
        try:
            given: tuple[At, Api] | None = turn.get()
            return given
        except BaseException:
            # Who no longer waits must not get a connection, or must pass it on.
            if (at, turn) in self._waiting:
                self._waiting.remove((at, turn))
            elif turn.value is not None:
                self._give(*turn.value)
            raise

    def _worth_another(self, at: At) -> bool:
        there = sum(number for server, number in self._count.items() if self._fits(server, at))
        waiting = sum(wanted == at for wanted, _ in self._waiting)
        return there == 0 or (at == ANY and there < MOST and waiting >= WORTH * there)

    def _opened(self, at: At, wait: float) -> tuple[At, Api]:
        hosts = sorted(self._hosts, key=lambda host: self._count[host, APISERVER])
        server = at if at != ANY or not hosts else (hosts[0], APISERVER)
        # Whoever asks the same server meanwhile waits for this connection.
        self._count[server] += 1
        try:
            if at == ANY:
                api = self._open_any(hosts, wait)
                fit = True
            else:
                api, fit = self._open_at(at)
        except BaseException:
            self._gone(server)
            raise
        if at == ANY and server != (api.host, APISERVER):
            self._count[api.host, APISERVER] += 1
            self._gone(server)
            server = (api.host, APISERVER)
        if fit:
            self._unfit.discard(server)
        elif server[1] == APISERVER:
            self._unfit.add(server)
            self._look_again()
        return server, api

    def _give(self, server: At, api: Api) -> None:
        for one in self._waiting:
            if self._fits(server, one[0]):
                self._waiting.remove(one)
                one[1].set((server, api))
                return
        self._idle.append((server, api))

    def _gone(self, server: At) -> None:
        self._count[server] -= 1
        self._look_again()

    def _look_again(self) -> None:
        """Those who wait may have nothing left to wait for."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            turn.set(None)
