"""The load balancer before several API servers, with real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.lab.balancer import Place, balance, place

ROOT = Path(__file__).resolve().parents[3]


@contextlib.asynccontextmanager
async def named(name: str, bound: socket.socket | None = None) -> AsyncIterator[Place]:
    """A server that reads to the end of what it is sent and answers with its name and all it read."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode() + b":" + await reader.read())
        writer.close()

    server = await (asyncio.start_server(answer, sock=bound) if bound else asyncio.start_server(answer, "127.0.0.1", 0))
    yield server.sockets[0].getsockname()
    server.close()


@contextlib.asynccontextmanager
async def balanced(places: Sequence[Place], connect_timeout: float = 300.0) -> AsyncIterator[Place]:
    server = await balance(("127.0.0.1", 0), places, connect_timeout)
    yield server.sockets[0].getsockname()
    server.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes; a connection that is closed the hard way has ended, too."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def ask(where: Place, text: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(*where)
    writer.write(text)
    writer.write_eof()
    try:
        return await until_closed(reader)
    finally:
        writer.close()


@pytest.fixture
def refusing() -> Iterator[socket.socket]:
    """Bound, so that nobody else gets the port, and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture
def silent() -> Iterator[Place]:
    """A server whose queue is full: the kernel answers no further connection, as with a node that is gone."""
    with socket.socket() as server, contextlib.ExitStack() as queue:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        queue.enter_context(socket.create_connection(server.getsockname()))
        with pytest.raises(TimeoutError):
            queue.enter_context(socket.create_connection(server.getsockname(), timeout=0.3))
        yield server.getsockname()


def test_connections_go_to_each_place_in_turn() -> None:
    async def scenario() -> list[bytes]:
        async with named("a") as a, named("b") as b, named("c") as c, balanced([a, b, c]) as entry:
            return [await ask(entry) for _ in range(6)]

    assert asyncio.run(scenario()) == [b"a:", b"b:", b"c:"] * 2


def test_bytes_pass_unchanged_both_ways_and_so_does_the_end_of_each() -> None:
    much = bytes(range(256)) * 20_000

    async def scenario() -> bytes:
        async with named("a") as a, balanced([a]) as entry:
            return await ask(entry, much)

    assert asyncio.run(scenario()) == b"a:" + much


def test_an_answer_that_takes_long_still_arrives() -> None:
    """A client that has said all it has to say is not watched any more; its connection must be held nevertheless."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gc.collect()
        writer.write(b"late")
        writer.close()

    async def scenario() -> bytes:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with balanced([server.sockets[0].getsockname()]) as entry:
            try:
                return await ask(entry)
            finally:
                server.close()

    assert asyncio.run(asyncio.wait_for(scenario(), 600)) == b"late"


def test_a_place_that_refuses_is_skipped_until_it_is_back(refusing: socket.socket) -> None:
    async def scenario() -> tuple[list[bytes], list[bytes]]:
        async with named("b") as b, named("c") as c, balanced([refusing.getsockname(), b, c]) as entry:
            without = [await ask(entry) for _ in range(3)]
            async with named("a", refusing):
                return without, [await ask(entry) for _ in range(3)]

    assert asyncio.run(scenario()) == ([b"b:", b"b:", b"c:"], [b"a:", b"b:", b"c:"])


def test_a_place_that_does_not_answer_is_skipped(silent: Place) -> None:
    async def scenario() -> list[bytes]:
        async with named("b") as b, balanced([silent, b], connect_timeout=1.5) as entry:
            return [await ask(entry) for _ in range(3)]

    assert asyncio.run(scenario()) == [b"b:"] * 3


def test_a_client_is_not_kept_waiting_when_nobody_is_there(refusing: socket.socket) -> None:
    async def scenario() -> bytes:
        async with balanced([refusing.getsockname()]) as entry:
            return await ask(entry)

    assert asyncio.run(asyncio.wait_for(scenario(), 600)) == b""


def test_a_connection_that_breaks_behind_breaks_before_too() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async def scenario() -> bytes:
        server = await asyncio.start_server(break_off, "127.0.0.1", 0)
        async with balanced([server.sockets[0].getsockname()]) as entry:
            reader, writer = await asyncio.open_connection(*entry)
            writer.write(b"x")
            try:
                return await until_closed(reader)
            finally:
                writer.close()
                server.close()

    assert asyncio.run(asyncio.wait_for(scenario(), 600)) == b""


def test_a_place_is_read() -> None:
    assert place("10.77.0.5:6443") == ("10.77.0.5", 6443)


def test_the_program_itself() -> None:
    async def scenario() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as free:
            entry = free.getsockname()
        async with named("a") as a:
            words = [f"{address}:{port}" for address, port in (entry, a)]
            running = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.lab.balancer", *words, cwd=ROOT, stderr=subprocess.PIPE
            )
            try:
                while True:
                    assert running.returncode is None
                    try:
                        return await ask(entry, b"hello")
                    except ConnectionRefusedError:
                        await asyncio.sleep(0.05)
            finally:
                running.kill()
                told = (await running.communicate())[1]
                assert told == b""

    assert asyncio.run(asyncio.wait_for(scenario(), 600)) == b"a:hello"
