"""The only package that uses pyinfra, gevent and paramiko: hosts and their connections, tasks that wait, the terminal.

If pyinfra moves to asyncio, only this package changes.
"""

from roles.engine.bridge import channels, tasks
from roles.engine.bridge.command_line import end_with, ending, only_plans
from roles.engine.bridge.hosts import (
    Feed,
    Fleet,
    Remote,
    as_deploy,
    at_once,
    current_host,
    exit_with,
    hosts_by_name,
    on_interrupt,
    pyinfra_keys,
    refusals,
    refuse,
    refusing,
    run_on_host,
    run_once,
    stop,
    whole,
)
from roles.engine.bridge.progress import doing
from roles.engine.bridge.unforeseen import sentence as unforeseen_error

__all__ = [
    "Feed",
    "Fleet",
    "Remote",
    "as_deploy",
    "at_once",
    "channels",
    "current_host",
    "doing",
    "end_with",
    "ending",
    "exit_with",
    "hosts_by_name",
    "on_interrupt",
    "only_plans",
    "pyinfra_keys",
    "refusals",
    "refuse",
    "refusing",
    "run_on_host",
    "run_once",
    "stop",
    "tasks",
    "unforeseen_error",
    "whole",
]
