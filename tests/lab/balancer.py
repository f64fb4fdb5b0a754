"""A load balancer for TCP: each connection goes to the next of several places; those that do not answer are skipped.

python -m tests.lab.balancer LISTEN PLACE...    (each ADDRESS:PORT)
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections.abc import Sequence

CONNECT_TIMEOUT = 1.0  # seconds; all places are in the lab's own network
# A node whose plug was pulled says no goodbye: its connections end after some 15 s, not never.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000),
)

Place = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def balance(listen: Place, places: Sequence[Place], connect_timeout: float = CONNECT_TIMEOUT) -> asyncio.Server:
    """A server that takes connections at `listen`. A client for whom no place answers sees its connection closed."""
    turns = itertools.count()
    # The event loop holds tasks weakly: one that waits for an API server while its client is silent would be collected.
    serving: set[asyncio.Task[None]] = set()

    async def reach() -> Streams | None:
        first = next(turns)
        for place in (places[(first + step) % len(places)] for step in range(len(places))):
            try:
                async with asyncio.timeout(connect_timeout):
                    streams = await asyncio.open_connection(*place)
                _keep_alive(streams[1])
                return streams
            except OSError:  # refused, no route; TimeoutError is one, too
                continue
        return None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep_alive(writer)
        reached = await reach()
        if reached is None:
            writer.transport.abort()
            return
        far_reader, far_writer = reached
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        for end in (writer, far_writer):
            end.close()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        serving.add(task)
        task.add_done_callback(serving.discard)

    return await asyncio.start_server(take, *listen, backlog=1024)


def _keep_alive(end: asyncio.StreamWriter) -> None:
    for option in KEEPALIVE:
        end.get_extra_info("socket").setsockopt(*option)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes one way until the source ends, and pass on how it ended: in order, or broken."""
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.transport.abort()


def place(text: str) -> Place:
    address, port = text.rsplit(":", 1)
    return address, int(port)


async def main() -> None:
    listen, *places = map(place, sys.argv[1:])
    server = await balance(listen, places)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
