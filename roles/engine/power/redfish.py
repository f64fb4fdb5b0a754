"""Redfish by sushy (Apache-2.0). Loaded by roles/engine/power/__main__.py only."""

from __future__ import annotations

from pathlib import Path

import sushy
from sushy.resources.system.system import System as Computer

from roles.engine.power.drivers import Verb
from roles.engine.power.model import Redfish

# Where the operating system has no part in it (DSP0268, Resource.ResetType), the first that the BMC allows.
_WAYS: dict[Verb, tuple[sushy.ResetType, ...]] = {
    "on": (sushy.ResetType.ON, sushy.ResetType.FORCE_ON),
    "force_off": (sushy.ResetType.FORCE_OFF,),
}


class System:
    """The ComputerSystem of a BMC. Raises what sushy raises, and ValueError."""

    def __init__(self, driver: Redfish, password: str) -> None:
        verify = str(Path(driver.verify).expanduser()) if isinstance(driver.verify, str) else driver.verify
        # A session would stay on a BMC that hangs meanwhile, and BMCs have few of them.
        auth = sushy.auth.BasicAuth(driver.user, password)
        self._root, self._path = sushy.Sushy(driver.url, verify=verify, auth=auth), driver.system or None

    def ask(self, verb: Verb) -> str:
        system: Computer = self._root.get_system(self._path)
        state = system.power_state
        if verb == "state":
            # PoweringOn, PoweringOff and Paused are neither.
            return {sushy.PowerState.ON: "on", sushy.PowerState.OFF: "off"}.get(state, "unknown")
        allowed = system.get_allowed_reset_system_values()
        ways = [way for way in _WAYS[verb] if way in allowed]
        if not ways:
            names = ", ".join(sorted(way.value for way in allowed))
            raise ValueError(f"the BMC offers none of {', '.join(way.value for way in _WAYS[verb])}, only {names}")
        system.reset_system(ways[0])
        return ""
