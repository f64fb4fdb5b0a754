"""gevent's tasks, which wait for each other: everything in daytwo that waits uses these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from gevent import Greenlet, Timeout, getcurrent, sleep, spawn
from gevent.event import AsyncResult, Event
from gevent.lock import BoundedSemaphore
from gevent.pool import Pool
from gevent.queue import Queue

#: A task that runs concurrently with others.
Task = Greenlet
#: The calling task.
current_task = getcurrent
#: One task at a time.
Lock = BoundedSemaphore

__all__ = ["AsyncResult", "Event", "Lock", "Pool", "Queue", "Task", "Timeout", "current_task", "sleep", "spawn", "together"]

T = TypeVar("T")


def together(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Work on all items at the same time, until all have ended. Raises the first error then."""
    pool, errors = Pool(max(1, len(items))), list[Exception]()

    def one(item: T) -> None:
        try:
            work(item)
        except Exception as error:
            errors.append(error)

    for item in items:
        pool.spawn(one, item)
    pool.join()
    if errors:
        raise errors[0]
