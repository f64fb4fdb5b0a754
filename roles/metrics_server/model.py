"""The desired metrics-server: the operator's own image, and how many replicas. Each error has a way out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from roles.engine.inputs import MAP_OR_TEXT, Boolean, Data, Frozen, Kubeconfig, read_common
from roles.engine.kube.names import object_name

DEFAULT_PROOF_SECONDS = 180
#: The reference of an image (distribution/reference): a host, a path, a tag or a digest.
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)(?:[.+-].*)?")
_MOST_REPLICAS = 10


def version_of(text: str) -> tuple[int, int] | None:
    """(0, 9) of v0.9.0; None if it is no version."""
    found = _VERSION.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


class MetricsServer(BaseModel):
    """`image`: the reference as the nodes' container runtime pulls it, or has it. `version`: that of metrics-server, if the image's tag
    does not say it. `replicas` None: 2 where two nodes can run them, else 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str
    version: str = ""
    replicas: Annotated[int, Field(ge=1, le=_MOST_REPLICAS)] | None = None
    pull_secret: str = ""

    @field_validator("image")
    @classmethod
    def _image(cls, value: str) -> str:
        found = _IMAGE.fullmatch(value)
        if not found:
            raise ValueError(f"{value!r} is not an image with its registry, such as registry.example.com/metrics-server:v0.9.0")
        if "@" not in value and found["tag"] in (None, "latest"):
            raise ValueError(f"{value} has no fixed version; name a tag, such as :v0.9.0, or a digest")
        return value

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if value and version_of(value) is None:
            raise ValueError(f"{value!r} is not a version of metrics-server, such as 0.9.0")
        return value

    @field_validator("pull_secret")
    @classmethod
    def _secret(cls, value: str) -> str:
        return object_name(value) if value else value

    @property
    def tag(self) -> str:
        found = _IMAGE.fullmatch(self.image)
        return (found["tag"] or "") if found else ""

    @property
    def release(self) -> tuple[int, int] | None:
        """Its minor version; None if neither the tag nor `version` says it."""
        return version_of(self.version or self.tag)


def _read(value: Any) -> Any:
    """A mapping, or the image alone, as --data accepts it."""
    if isinstance(value, MetricsServer):
        return value
    if isinstance(value, str):
        value = {"image": value}
    if not isinstance(value, Mapping):
        raise ValueError("metrics_server: write the image, or a mapping: {'image': 'registry.example.com/metrics-server:v0.9.0'}")
    try:
        return MetricsServer(**{str(key): entry for key, entry in value.items()})
    except ValidationError as error:
        problems = [
            f"metrics_server.{'.'.join(map(str, item['loc']))}: {str(item['msg']).removeprefix('Value error, ')}" for item in error.errors()
        ]
        raise ValueError("; ".join(problems)) from None


class DesiredServer(Frozen):
    """The data keys of deploys/metrics_server.py; they belong to the cluster."""

    metrics_server: Annotated[
        MetricsServer,
        BeforeValidator(_read),
        MAP_OR_TEXT,
        Field(
            description="`image`: the reference as your nodes pull it, or have it, with a fixed tag or digest. `replicas`: by default 2 if"
            " two nodes can run them and have room, else 1. `version`: that of metrics-server, if the tag does not say it. `pull_secret`:"
            " the name of a Secret in kube-system",
            examples=[{"image": "registry.example.com/metrics-server:v0.9.0"}, "registry.example.com/metrics-server:v0.9.0"],
        ),
    ]
    force: Annotated[
        Boolean,
        Field(
            description="consent: take over objects of the same names that somebody else has created; not the metrics API that somebody"
            " else serves: remove that first with the tool that made it",
            examples=[True],
        ),
    ] = False
    allow_unsupported: Annotated[
        Boolean,
        Field(description="consent: install a metrics-server that is not made for this version of Kubernetes", examples=[True]),
    ] = False
    proof_timeout: Annotated[
        int,
        Field(ge=1, le=3600, description="seconds for the roll-out, and as long again until every node has fresh metrics", examples=[300]),
    ] = DEFAULT_PROOF_SECONDS
    kubeconfig: Kubeconfig = None


def read_server(hosts: Iterable[tuple[str, Data]]) -> DesiredServer | None:
    """From the data of all hosts; None if none has it. Raises Refusal."""
    known = list(hosts)
    if all(data("metrics_server") is None for _, data in known):
        return None
    return read_common(known, DesiredServer, "set it once, in group_data/all.py")[1]
