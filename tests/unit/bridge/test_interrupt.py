"""Ctrl-C reaches whoever waits for the run, whatever is at work in that moment."""

from __future__ import annotations

import subprocess
import sys

import pytest

# gevent's threads are greenlets of the main thread: a signal finds one of them at work, as it may find one of paramiko's.
SCRIPT = """
import gevent.monkey
gevent.monkey.patch_all()
import os, signal, threading
import gevent
from roles.engine.bridge.hosts import on_interrupt

def leave():
    raise SystemExit(7)

def at_work():
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000):
        pass

on_interrupt(leave)
threading.Thread(target=at_work, daemon=True).start()
gevent.sleep(20)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_leaving_is_lost_in_no_other_greenlet(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(name=name)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 7, done.stderr
