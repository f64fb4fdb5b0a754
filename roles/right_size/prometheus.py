"""A Prometheus as one more source: the rates and the memory of containers that it has kept, over the time that it has. Only reads.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/ (query_range: a matrix of labels and [time, "value"]), and the kubelet's
cAdvisor metrics. Its points are means over five minutes, so they show no peak of CPU; of memory they have the highest.
"""

from __future__ import annotations

import http.client
import math
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from roles.engine.bounds import read_json
from roles.engine.timeouts import Deadline, patient
from roles.right_size.samples import DAY, KEEP_DAYS, Point, Read, Span, bucket

STEP = 300
# Seconds: points that are further apart have something missing between them.
_GAP = 3.0 * STEP
SECONDS = 60.0
#: A larger answer is refused.
MOST_BYTES = 256 * 2**20
# No container has more cores, or more bytes.
_HIGHEST = 2.0**62
_CPU = 'rate(container_cpu_usage_seconds_total{{namespace="{}",container!="",container!="POD"}}[5m])'
_MEMORY = 'max_over_time(container_memory_working_set_bytes{{namespace="{}",container!="",container!="POD"}}[5m])'

#: Fetches a URL.
Get = Callable[[str], bytes]
#: Namespace, pod, container.
Place = tuple[str, str, str]


class PrometheusError(Exception):
    """It cannot be asked, or its answer is not understood. Names the address and the way out."""


class _Here(urllib.request.HTTPRedirectHandler):
    """Only the address that the operator gave is asked: an answer cannot send daytwo to another one."""

    def redirect_request(self, *_: object) -> None:
        return None


def get(url: str) -> bytes:
    """Raises PrometheusError."""
    where, data, deadline = url.partition("/api/")[0], bytearray(), Deadline(SECONDS)
    try:
        # The model has checked its scheme. The time limit of a socket is for each read: a slow answer has one as a whole, too.
        with urllib.request.build_opener(_Here).open(url, timeout=patient(SECONDS)) as answer:
            while len(data) <= MOST_BYTES and (part := answer.read1(2**20)):
                data += part
                if deadline.over:
                    raise TimeoutError(f"no whole answer within {deadline.seconds:g} s")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise PrometheusError(f"{where}: it cannot be asked ({error}); check the address, or leave prometheus out") from None
    if len(data) > MOST_BYTES:
        raise PrometheusError(f"{where}: its answer is larger than {MOST_BYTES // 2**20} MiB; ask for fewer with --data namespaces=...")
    return bytes(data)


def spans(url: str, namespaces: Iterable[str], now: float, fetch: Get = get) -> dict[Place, Span]:
    """A span for each container of these namespaces (valid names), by namespace, pod and container. Raises PrometheusError."""
    found: dict[Place, dict[str, list[tuple[float, float]]]] = {}
    begun, ended = now - KEEP_DAYS * DAY - STEP, now + STEP
    for namespace in namespaces:
        for kind, query in (("cpu", _CPU), ("memory", _MEMORY)):
            span = {"start": f"{now - KEEP_DAYS * DAY:.0f}", "end": f"{now:.0f}", "step": str(_step())}
            data = fetch(f"{url}/api/v1/query_range?{urlencode({'query': query.format(namespace), **span})}")
            for labels, values in _matrix(url, data):
                place = (namespace, str(labels.get("pod") or ""), str(labels.get("container") or ""))
                found.setdefault(place, {}).setdefault(kind, []).extend(value for value in values if begun <= value[0] <= ended)
    return {place: one for place, series in found.items() if (one := _span(place, series)) is not None}


def _step() -> int:
    # A Prometheus answers at most 11 000 points for each series.
    return max(STEP, math.ceil(KEEP_DAYS * DAY / 10_000 / STEP) * STEP)


def _matrix(url: str, data: bytes) -> list[tuple[Mapping[str, Any], list[tuple[float, float]]]]:
    try:
        answer = read_json(data)
        if answer.get("status") != "success":
            raise ValueError(str(answer.get("error") or answer.get("status"))[:200])
        found = []
        for series in answer["data"]["result"]:
            values = [(float(at), float(value)) for at, value in series["values"]]
            found.append((series["metric"], [(at, value) for at, value in values if 0 <= value <= _HIGHEST]))
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PrometheusError(f"{url}: its answer is not understood ({type(error).__name__}: {error}); is it a Prometheus?") from None


def _span(place: Place, series: Mapping[str, list[tuple[float, float]]]) -> Span | None:
    cpu, memory = sorted(series.get("cpu", ())), sorted(series.get("memory", ()))
    times = [at for at, _ in (*cpu, *memory)]
    if not times:
        return None
    slow: dict[int, dict[int, int]] = {}
    for at, cores in cpu:
        counts = slow.setdefault(int(at // DAY), {})
        index = bucket(1000 * cores)
        counts[index] = counts.get(index, 0) + 1
    points = tuple(Point(at, int(size), int(size)) for at, size in memory)
    # Time without points was not seen: `first` is as long before the last one as there are points of.
    last, seen = Read(max(times), "prometheus", memory=points[-1].most if points else None), sorted({*times})
    first = seen[-1] - sum(min(after - before, _GAP) for before, after in pairwise(seen))
    return Span(f"prometheus {'/'.join(place)}", place[1], "", "", first, last, max(len(cpu), len(memory)), slow=slow, points=points)
