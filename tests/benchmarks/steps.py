"""Where the time of a short run goes: daytwo's own command, with the clock read at the end of each step.

As a program it is that command: `python steps.py FILE ARGUMENTS OF PYINFRA`, and writes the steps to FILE. It sets its marks around
functions of pyinfra (pyinfra_cli/cli.py, pyinfra 3.10) and of daytwo, and changes nothing else.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: The name of a step; seconds, and seconds of the processor.
Step = tuple[str, float, float]


def report(folder: Path, words: Sequence[str], cwd: Path, environment: Mapping[str, str], runs: int) -> Iterator[str]:
    """The medians of each step of a command of pyinfra (its words after `pyinfra`). Raises RuntimeError."""
    file = folder / "steps.json"
    found: list[list[Step]] = []
    for _ in range(runs):
        file.unlink(missing_ok=True)
        command = [sys.executable, "-P", __file__, str(file), *words]
        done = subprocess.run(
            command, cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode:
            raise RuntimeError(f"pyinfra ended with status {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
        found.append([(name, wall, cpu) for name, wall, cpu in json.loads(file.read_text())])
    yield f"{'seconds':>8} {'CPU':>6}  until"
    for name, wall, cpu in medians(found):
        yield f"{wall:8.3f} {cpu:6.3f}  {name}"


def medians(found: Sequence[Sequence[Step]]) -> list[Step]:
    """By step, in the order of the first run; and the whole. Each run has the same steps, from times since its start."""
    made = []
    for number, (name, _, _) in enumerate(found[0]):
        before = [run[number - 1][1:] if number else (0.0, 0.0) for run in found]
        walls = [run[number][1] - earlier[0] for run, earlier in zip(found, before, strict=True)]
        cpus = [run[number][2] - earlier[1] for run, earlier in zip(found, before, strict=True)]
        made.append((name, statistics.median(walls), statistics.median(cpus)))
    ends = [run[-1] for run in found]
    return [*made, ("the whole", statistics.median(end[1] for end in ends), statistics.median(end[2] for end in ends))]


def _main(file: str, words: list[str]) -> None:
    begun = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    steps: list[Step] = []

    def mark(name: str) -> None:
        steps.append((name, time.clock_gettime(time.CLOCK_BOOTTIME) - begun, time.process_time()))

    def marked(name: str, work: Callable[..., Any], before: str = "") -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*args: Any, **more: Any) -> Any:
            if before:
                mark(before)
            try:
                return work(*args, **more)
            finally:
                mark(name)

        return run

    # As the command pyinfra does it: first of all gevent's patches, by pyinfra_cli itself.
    sys.argv = ["pyinfra", *words]
    import pyinfra_cli.main  # noqa: PLC0415 - what it takes is to be seen

    cli: Any = sys.modules["pyinfra_cli.cli"]
    mark("Python and pyinfra are loaded")
    connect = cli.connect_all

    def connect_all(*args: Any, **more: Any) -> None:
        from roles.engine.bridge import Fleet  # noqa: PLC0415 - config.py has loaded it

        each = Fleet.each

        def each_marked(self: Any, *inner: Any, **named: Any) -> Any:
            if named.get("doing") != "read":
                return each(self, *inner, **named)
            return marked("the nodes have answered", each, "the deploy is loaded")(self, *inner, **named)

        Fleet.each = each_marked  # type: ignore[method-assign,assignment]
        marked("connected", connect, "config.py and the inventory are read")(*args, **more)

    cli.connect_all = connect_all
    cli.disconnect_all = marked("disconnected", cli.disconnect_all, "the API has answered, and the result is shown")
    try:
        pyinfra_cli.main.main()
    finally:
        Path(file).write_text(json.dumps(steps))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
