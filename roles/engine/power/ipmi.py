"""IPMI 2.0 by pyghmi (Apache-2.0). Loaded by roles/engine/power/__main__.py only."""

from __future__ import annotations

from pyghmi.ipmi import command

from roles.engine.power.drivers import Verb
from roles.engine.power.model import Ipmi


class Chassis:
    """The chassis of a BMC. Raises what pyghmi raises."""

    def __init__(self, driver: Ipmi, password: str) -> None:
        self._bmc = command.Command(bmc=driver.address, userid=driver.user, password=password, port=driver.port)

    def ask(self, verb: Verb) -> str:
        try:
            if verb == "state":
                return str(self._bmc.get_power().get("powerstate", ""))
            # `off` of pyghmi cuts the power; `shutdown` asks the operating system.
            self._bmc.set_power("on" if verb == "on" else "off")
            return ""
        finally:
            self._bmc.ipmi_session.logout()
