"""What the relay between controller and hosts costs by itself: so that no figure is the relay's."""

from __future__ import annotations

import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.benchmarks.measure import processor_seconds
from tests.benchmarks.world import BenchError, World

_TRIES = 20
_MIB = 128


def report(world: World, latencies: Sequence[float]) -> Iterator[str]:
    """For each round-trip time in ms: the time from a connection to sshd's first line, and MiB/s and CPU of one SSH stream. Raises
    BenchError."""
    host = world.hosts()[0]
    yield "round trip, ms   first line of sshd, ms (min-max)   MiB/s   hosts' and relay's CPU, ms per MiB"
    for latency in latencies:
        world.delay(latency)
        taken = [_first_line(host.listen) * 1000 for _ in range(_TRIES)]
        seconds, used = _stream(world, host.name)
        spread = f"{statistics.median(taken):.1f} ({min(taken):.1f}-{max(taken):.1f})"
        yield f"{latency:14g}   {spread:>34}   {_MIB / seconds:5.0f}   {used * 1000 / _MIB:34.1f}"


def _first_line(address: str) -> float:
    begun = time.monotonic()
    with socket.create_connection((address, 22), timeout=60) as made:
        if not made.recv(1):
            raise BenchError(f"{address}: sshd closed the connection")
    return time.monotonic() - begun


def _stream(world: World, host: str) -> tuple[float, float]:
    """Seconds, and seconds of the world's processors, for _MIB from a host."""
    pid = world.pid()
    if pid is None:
        raise BenchError("the hosts are not up")
    before, begun = processor_seconds(pid), time.monotonic()
    words = ["ssh", "-F", str(world.ssh_config), host, f"head -c {_MIB}M /dev/zero"]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    if done.returncode:
        raise BenchError(f"{host}: {done.stderr.strip()}")
    return time.monotonic() - begun, processor_seconds(pid) - before
