"""A run of pyinfra (tests/integration/warm.py) that is held up at one point until a file says go.

The point is a step of change.sh, or `ConfigMap NAME GO`: between the first look at this ConfigMap and the write; GO is the file. Only the
function that tells a step, or reads the ConfigMap, is another one; everything else is what is shipped.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from roles.engine.transaction import change_script

PLAIN = 'step() { say "step: $*"; }'
# A directory is made once: what begins again after a fault does not hold again. After two minutes it goes on in any case.
HOLDING = r"""step() {
    say "step: $*"
    if [ "$*" = '@STEP@' ] && mkdir "$home/held" 2>/dev/null; then
        say held
        moments=0
        while [ ! -e "$home/go" ] && [ "$moments" -lt 1200 ]; do sleep 0.1; moments=$((moments + 1)); done
    fi
}"""


def hold_at(step: str) -> None:
    render = change_script.render

    def holding(*arguments: object, **more: object) -> str:
        text = render(*arguments, **more)  # type: ignore[arg-type]
        assert text.count(PLAIN) == 1
        return text.replace(PLAIN, HOLDING.replace("@STEP@", step))

    change_script.render = holding


def hold_before_write(name: str, go: Path) -> None:
    writing: Any = importlib.import_module("roles.engine.kubeadm_config.write")
    read = writing._read

    def holding(connect: object, what: str) -> object:
        found = read(connect, what)
        until = time.monotonic() + 600
        if what == name and not go.exists():
            print(f"{name}: held", flush=True)
            while not go.exists() and time.monotonic() < until:
                time.sleep(0.1)
        return found

    writing._read = holding


def at(point: str) -> None:
    match point.split():
        case ["ConfigMap", name, go]:
            hold_before_write(name, Path(go))
        case _:
            hold_at(point)
