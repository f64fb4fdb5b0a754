"""The only package that uses pyinfra, gevent and paramiko: hosts and their connections, tasks that wait, the terminal.

If pyinfra moves to asyncio, only this package changes.
"""

from roles.engine.bridge.channels import Channel, ChannelException, SSHException, Transport
from roles.engine.bridge.command_line import end_with
from roles.engine.bridge.hosts import (
    Answer,
    ConnectionLost,
    Feed,
    Fleet,
    Remote,
    RemoteError,
    as_deploy,
    at_once,
    current_host,
    exit_with,
    hosts_by_name,
    on_interrupt,
    pyinfra_keys,
    refusals,
    refuse,
    run_on_host,
    run_once,
    stop,
    whole,
)
from roles.engine.bridge.progress import doing
from roles.engine.bridge.tasks import AsyncResult, Event, Lock, Pool, Task, Timeout, current_task, sleep, spawn, together
from roles.engine.bridge.terminal import show, show_lines
from roles.engine.bridge.unforeseen import sentence as unforeseen_error

__all__ = [
    "Answer",
    "AsyncResult",
    "Channel",
    "ChannelException",
    "ConnectionLost",
    "Event",
    "Feed",
    "Fleet",
    "Lock",
    "Pool",
    "Remote",
    "RemoteError",
    "SSHException",
    "Task",
    "Timeout",
    "Transport",
    "as_deploy",
    "at_once",
    "current_host",
    "current_task",
    "doing",
    "end_with",
    "exit_with",
    "hosts_by_name",
    "on_interrupt",
    "pyinfra_keys",
    "refusals",
    "refuse",
    "run_on_host",
    "run_once",
    "show",
    "show_lines",
    "sleep",
    "spawn",
    "stop",
    "together",
    "unforeseen_error",
    "whole",
]
