"""pyinfra's settings for daytwo (pyinfra.api.config). Read from the folder pyinfra is started in."""

import atexit
import gc
import importlib.util
import sys

from pyinfra import config

# A run keeps nearly all that it makes: Python would look through all of it again and again for what is no longer used.
gc.set_threshold(50_000, 20, 50)
# At its end it would look twice through all of it, to free what the end of the process frees anyway: a tenth of a short run's time.
atexit.register(gc.freeze)

# paramiko imports invoke at once, for `Match exec` in an ssh_config only. From here on it is imported when it is used.
if (spec := importlib.util.find_spec("invoke")) and spec.loader and "invoke" not in sys.modules:
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules["invoke"] = invoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(invoke)

# A host that fails stops the run: later deploy files do not run. (Not one that cannot be connected to: each deploy decides about that.)
config.FAIL_PERCENT = 0

# A node that does not answer must not delay a roll-out for minutes.
config.CONNECT_TIMEOUT = 20

# pyinfra switches Python's bytecode cache off (pyinfra_cli/main.py), so that deploy files leave none. They never do: pyinfra compiles
# those itself. But each command would compile all of roles/ again. `python -B` and PYTHONDONTWRITEBYTECODE still work.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

# Before connecting to any host: make output harmless, refuse what the command line names and is not there, check host keys by the rules of
# the operator's own ssh, allow a file per host, and go on without hosts that do not answer.
from roles.engine.bridge import command_line, host_keys, limits, progress, terminal, unreachable  # noqa: E402 - its bytecode should be cached, too

terminal.guard()
command_line.guard()
host_keys.guard()
limits.guard()
progress.guard()
unreachable.guard()
