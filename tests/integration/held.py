"""Runs pyinfra as an operator does, but change.sh holds its breath at one step until a file says go: `held.py STEP ARGUMENTS...`.

Only the function that tells a step is another one; everything else is what is shipped.
"""

from __future__ import annotations

import runpy
import sys

from roles.change import bundle

PLAIN = 'step() { say "step: $*"; }'
# A directory is made once: what is begun anew after a fault does not hold again. After two minutes it goes on in any case.
HOLDING = r"""step() {
    say "step: $*"
    if [ "$*" = '@STEP@' ] && mkdir "$home/held" 2>/dev/null; then
        say held
        moments=0
        while [ ! -e "$home/go" ] && [ "$moments" -lt 1200 ]; do sleep 0.1; moments=$((moments + 1)); done
    fi
}"""


def hold_at(step: str) -> None:
    render = bundle.render

    def holding(*arguments: object, **more: object) -> str:
        text = render(*arguments, **more)  # type: ignore[arg-type]
        assert text.count(PLAIN) == 1
        return text.replace(PLAIN, HOLDING.replace("@STEP@", step))

    bundle.render = holding


if __name__ == "__main__":
    hold_at(sys.argv[1])
    sys.argv = ["pyinfra", *sys.argv[2:]]
    runpy.run_module("pyinfra", run_name="__main__")
