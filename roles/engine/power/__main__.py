"""`python -m roles.engine.power`: one question to a BMC. Reads {"verb", "password", "power"} from standard input, and prints {"state"} or
{"error"}. Only this process loads the library of the driver."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from roles.engine.bounds import read_json
from roles.engine.power.drivers import Verb
from roles.engine.power.model import HostPower, Ipmi, Redfish


def main() -> int:
    asked = read_json(sys.stdin.read())
    password = str(asked["password"])
    driver = HostPower(power=asked["power"]).power
    ask: Callable[[Verb], str]
    try:
        if isinstance(driver, Redfish):
            from roles.engine.power.redfish import System  # noqa: PLC0415 - sushy is loaded for such a BMC only

            ask = System(driver, password).ask
        else:
            from roles.engine.power.ipmi import Chassis  # noqa: PLC0415 - the same with pyghmi

            assert isinstance(driver, Ipmi)
            ask = Chassis(driver, password).ask
        answer = {"state": ask(asked["verb"])}
    except Exception as error:  # whatever a library raises about a BMC is an answer about that BMC
        said = f"{type(error).__name__}: {error}"
        answer = {"error": said.replace(password, "***") if password else said}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
