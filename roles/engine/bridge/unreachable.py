"""A host that does not answer does not end the run, and why it does not answer is kept.

On many nodes there is always one. pyinfra would end at the first one (config.FAIL_PERCENT), or ask whether to continue; here each deploy
decides. A host that fails later still stops the run. Written for pyinfra 3.10 (api/state.py, api/host.py).
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import pyinfra
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State, StateStage

from roles.engine import folding, voice
from roles.engine.bridge.unforeseen import RunRefused
from roles.engine.harmless import one_line

# What a server says before it is trusted may be long.
_MOST = 300
_why: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def why(host: Host) -> str:
    """Why the last try to connect to a host failed: `Could not connect (...)`; "" if no try has failed."""
    return _why.get(host, "")


def guard() -> None:
    """From now on hosts that do not answer are left to the deploys. Calling it again changes nothing."""
    if hasattr(State.fail_hosts, "guarded"):
        return
    fail_hosts, connect = State.fail_hosts, Host.connect

    @functools.wraps(fail_hosts)
    def failing(self: Any, hosts_to_fail: Any, activated_count: Any = None) -> None:
        left = self.active_hosts - set(hosts_to_fail)
        if self.current_stage == StateStage.Connect and folding.folds():
            pyinfra.logger.info(f"connected to {len(left)} of {len(left) + len(hosts_to_fail)} hosts")
        if self.current_stage == StateStage.Connect and left:
            # So pyinfra ends with exit status 1, whatever else happens.
            self.failed_hosts.update(hosts_to_fail)
            self.active_hosts = left
        elif self.current_stage == StateStage.Connect and hosts_to_fail:
            raise RunRefused("no host of this run can be connected to; fix the connection, or choose others with --limit")
        else:
            try:
                fail_hosts(self, hosts_to_fail, activated_count)
            except PyinfraError:
                if voice.has_halted():
                    raise RunRefused("") from None
                names = folding.listed(sorted(host.name for host in self.failed_hosts))
                raise RunRefused(f"the run ended without success on {names}; what is above says why, and what to do next") from None

    @functools.wraps(connect)
    def connecting(self: Any, reason: Any = None, show_errors: bool = True, raise_exceptions: bool = False) -> None:
        try:
            connect(self, reason, show_errors, raise_exceptions=True)
        except ConnectError as error:
            _why[self] = one_line(str(error).replace("[Errno None] ", ""))[:_MOST]
            if raise_exceptions:
                raise

    failing.guarded = True  # type: ignore[attr-defined]
    State.fail_hosts, Host.connect = failing, connecting
