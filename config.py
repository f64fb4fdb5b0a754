"""pyinfra's settings for daytwo (pyinfra.api.config). Read from the folder pyinfra is started in."""

import sys

from pyinfra import config

# One host that fails stops the run: no later deploy file goes on as if nothing had happened.
config.FAIL_PERCENT = 0

# A node that does not answer must not hold a roll-out for minutes.
config.CONNECT_TIMEOUT = 20

# pyinfra forbids Python to keep what it compiled (pyinfra_cli/main.py), so that none is left of deploy files. It never is: pyinfra
# compiles those by itself. All of roles/ would be compiled for each command. `python -B` and PYTHONDONTWRITEBYTECODE are still obeyed.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

# Before any host is connected to: what hosts say is shown harmless, and their keys are judged as the operator's own ssh would.
from roles.engine.bridge import host_keys, terminal  # noqa: E402 - what it compiles is to be kept

terminal.guard()
host_keys.guard()
