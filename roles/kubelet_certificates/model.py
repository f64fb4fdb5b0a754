"""The data keys of deploys/kubelet_certificates.py."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from roles.engine.inputs import Boolean, Names, OfNodes


class CertificateKeys(OfNodes):
    """Which hosts get serving certificates, and which names the operator vouches for, by host."""

    serving_names: Annotated[
        Names,
        Field(
            description="DNS names or IP addresses of this host that it does not have itself, such as an address behind NAT: without"
            " them, a certificate that names one is refused. Set it for one host, never for all",
            examples=[["203.0.113.7"], "node7.example.com,203.0.113.7"],
        ),
    ] = None
    move_flags: Annotated[
        Boolean, Field(description="consent: move a flag that overrides the configuration file into that file", examples=[True])
    ] = False
    allow_evictions: Annotated[
        Boolean,
        Field(description="consent: continue if pods would not be admitted again by the restarted kubelet", examples=[True]),
    ] = False

    @field_validator("serving_names")
    @classmethod
    def _no_wildcard(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if bad := [name for name in value or () if "*" in name]:
            raise ValueError(f"serving_names: {', '.join(bad)}: a kubelet asks for no wildcard; write whole names")
        return value

    @property
    def vouched(self) -> frozenset[str]:
        return frozenset(self.serving_names or ())
