"""How a host's power is switched: the data key `power`, one model for each driver. Pure.

A secret is never in the data: the data name an environment variable, or a file of mode 0600.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from roles.engine.inputs import Frozen

#: Seconds for one question to a BMC, and between two questions: BMCs are slow, and some hang if they are asked often.
ASK_SECONDS, POLL_SECONDS = 60.0, 5.0
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}")


class _Driver(BaseModel):
    """`timeout`, `poll` in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timeout: Annotated[float, Field(ge=1, le=600)] = ASK_SECONDS
    poll: Annotated[float, Field(ge=0.2, le=600)] = POLL_SECONDS

    @property
    def about(self) -> str:
        """For people, without a secret."""
        raise NotImplementedError

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is less than safe, because the inventory says so."""
        return ()


class _OfBmc(_Driver):
    """A BMC with a user. The password comes from the environment or from a file."""

    address: str
    user: str
    password_env: str = ""
    password_file: str = ""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if bool(self.password_env) == bool(self.password_file):
            raise ValueError("power: give one of password_env (a variable of the environment) and password_file (a file of mode 0600)")
        return self


class Redfish(_OfBmc):
    """`address`: https://NAME, or NAME; `system`: the path of the ComputerSystem, if the BMC has several; `verify`: true, false, or the
    path of a file with CAs."""

    driver: Literal["redfish"]
    system: str = ""
    verify: bool | str = True

    @model_validator(mode="after")
    def _safe(self) -> Self:
        found = urlsplit(self.url)
        if found.scheme not in ("https", "http") or not found.hostname or found.username is not None:
            raise ValueError("power: address of a Redfish BMC is https://NAME or NAME, without a user in it")
        if found.scheme == "http" and self.verify is not False:
            raise ValueError("power: address begins with http://, which sends the password in clear; use https, or say verify: false")
        return self

    @property
    def url(self) -> str:
        return self.address if "://" in self.address else f"https://{self.address}"

    @property
    def about(self) -> str:
        return f"redfish {self.url}"

    @property
    def warnings(self) -> tuple[str, ...]:
        unsafe = f"power: verify is false: whoever stands between this machine and {self.url} can answer for it, and read the password"
        return (unsafe,) if self.verify is False else ()


class Ipmi(_OfBmc):
    """IPMI 2.0 over the LAN."""

    driver: Literal["ipmi"]
    port: Annotated[int, Field(ge=1, le=65535)] = 623

    @property
    def about(self) -> str:
        return f"ipmi {self.address}:{self.port}"


class WakeOnLan(_Driver):
    """A machine without a BMC. `broadcast`: addresses to send the frame to, one for each network that the machine may be on."""

    driver: Literal["wake_on_lan"]
    mac: str
    broadcast: tuple[str, ...] = ("255.255.255.255",)
    port: Annotated[int, Field(ge=1, le=65535)] = 9

    @model_validator(mode="after")
    def _is_mac(self) -> Self:
        if not _MAC.fullmatch(self.mac):
            raise ValueError(f"power: mac is {self.mac!r}; write six pairs of hexadecimal digits, such as 52:54:00:12:34:56")
        return self

    @property
    def about(self) -> str:
        return f"wake_on_lan {self.mac}"


class Command(_Driver):
    """Programs of the operator's machine, as lists of words; no shell reads them. `status` prints `on` or `off` in its first line."""

    driver: Literal["command"]
    on: Annotated[tuple[str, ...], Field(min_length=1)]
    off: Annotated[tuple[str, ...], Field(min_length=1)]
    status: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def about(self) -> str:
        return f"command {Path(self.status[0]).name}"


Driver = Redfish | Ipmi | WakeOnLan | Command
MODELS: Mapping[str, type[_Driver]] = {"redfish": Redfish, "ipmi": Ipmi, "wake_on_lan": WakeOnLan, "command": Command}


def _known(value: Any) -> Any:
    """Names unknown fields without their values: one of them may be a password. Raises ValueError."""
    if isinstance(value, _Driver):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"power is no map; write {{'driver': 'redfish', ...}} with a driver of {', '.join(MODELS)}")
    model = MODELS.get(str(value.get("driver")))
    if model is None:
        raise ValueError(f"power: driver is {value.get('driver')!r}, but must be one of {', '.join(MODELS)}")
    fields = [name for name in model.model_fields if name != "driver"]
    if "password" in value:
        raise ValueError("power: a password does not belong into an inventory; use password_env or password_file")
    if unknown := sorted(str(name) for name in value if name not in model.model_fields):
        raise ValueError(f"power: unknown field {', '.join(unknown)}; fields of {value['driver']} are {', '.join(fields)}")
    if missing := [name for name in fields if model.model_fields[name].is_required() and name not in value]:
        raise ValueError(f"power: {', '.join(missing)} is missing")
    return value


class HostPower(Frozen):
    """The power of one host."""

    power: Annotated[
        Annotated[Driver, Field(discriminator="driver")] | None,
        BeforeValidator(_known),
        WithJsonSchema({"type": "object", "required": ["driver"], "properties": {"driver": {"enum": list(MODELS)}}}),
        Field(
            description="how the power of this host is switched (docs/power.md): a BMC by `redfish` or `ipmi`, `wake_on_lan`, or programs"
            " of the operator's machine (`command`). Set it with the host in the inventory",
            examples=[
                {"driver": "redfish", "address": "https://bmc-w1.example.net", "user": "daytwo", "password_env": "BMC_PASSWORD"},
                {"driver": "ipmi", "address": "bmc-w2.example.net", "user": "daytwo", "password_file": "~/.bmc-password"},
                {"driver": "wake_on_lan", "mac": "52:54:00:12:34:56", "broadcast": ["10.20.0.255"]},
            ],
        ),
    ] = None
