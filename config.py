"""pyinfra's settings for daytwo (pyinfra.api.config). Read from the folder pyinfra is started in."""

import sys

from pyinfra import config

# A host that fails stops the run: later deploy files do not run. (Not one that cannot be connected to: each deploy decides about that.)
config.FAIL_PERCENT = 0

# A node that does not answer must not delay a roll-out for minutes.
config.CONNECT_TIMEOUT = 20

# pyinfra switches Python's bytecode cache off (pyinfra_cli/main.py), so that deploy files leave none. They never do: pyinfra compiles
# those itself. But each command would compile all of roles/ again. `python -B` and PYTHONDONTWRITEBYTECODE still work.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

# Before connecting to any host: make output harmless, check host keys by the rules of the operator's own ssh, allow a file per host, and
# go on without hosts that do not answer.
from roles.engine.bridge import host_keys, limits, progress, terminal, unreachable  # noqa: E402 - its bytecode should be cached, too

terminal.guard()
host_keys.guard()
limits.guard()
progress.guard()
unreachable.guard()
