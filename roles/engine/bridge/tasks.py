"""gevent's tasks, which wait for each other: everything in daytwo that waits uses these."""

from __future__ import annotations

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

__all__ = ["AsyncResult", "Event", "Lock", "Pool", "Queue", "Task", "Timeout", "current_task", "sleep", "spawn"]
