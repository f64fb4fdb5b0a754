"""Tasks that wait for each other, as gevent has them: everything that waits in daytwo is made of these."""

from __future__ import annotations

from gevent import Greenlet, Timeout, getcurrent, sleep, spawn
from gevent.event import AsyncResult, Event
from gevent.lock import BoundedSemaphore
from gevent.pool import Pool
from gevent.queue import Queue

#: A task that runs beside others.
Task = Greenlet
#: The task that asks.
current_task = getcurrent
#: One task at a time.
Lock = BoundedSemaphore

__all__ = ["AsyncResult", "Event", "Lock", "Pool", "Queue", "Task", "Timeout", "current_task", "sleep", "spawn"]
