"""The context of a step without a run around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from roles.engine.bridge.tasks import together
from roles.engine.context import Fields, StepContext


def context(
    begin: Callable[[Fields], Any] = lambda fields: None,
    *,
    run: str = "r1",
    note: Callable[[Mapping[str, Any]], Any] = lambda event: None,
    stopped: Callable[[], str] = lambda: "",
    interrupted: Callable[[], bool] = lambda: False,
    ensure: Callable[[], Any] = lambda: None,
    say: Callable[[str], Any] = lambda text: None,
) -> StepContext:
    return StepContext(run, SimpleNamespace(ensure=ensure), SimpleNamespace(write=note), stopped, interrupted, say, together, begin)
