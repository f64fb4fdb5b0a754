"""The data keys of deploys/right_size.py, checked."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from roles.engine.inputs import LIST_OR_TEXT, TEXT, Boolean, Frozen, Kubeconfig, choice, names
from roles.engine.inputs.values import Output
from roles.engine.kube.names import is_chosen, namespace_name, workload_name
from roles.engine.kube.times import parse_duration
from roles.right_size.workloads import SizedWorkload

DAY = 86400


def _namespaces(value: Any) -> tuple[str, ...] | None:
    found = names(value)
    return None if found is None else tuple(namespace_name(name) for name in found)


def _workloads(value: Any) -> tuple[str, ...] | None:
    found = names(value)
    return None if found is None else tuple(map(workload_name, found))


def _span(value: Any) -> str:
    text = str(value).strip()
    if isinstance(value, bool):
        raise ValueError(f"min_span is {value!r}; write a duration: 7d, 36h, 90m")
    if span_seconds(text) < 0:
        raise ValueError(f"min_span={text} is below 0")
    return text


def span_seconds(text: str) -> float:
    """Of days (7d), or of a duration as Go writes it (36h). Raises ValueError."""
    if days := re.fullmatch(r"([0-9]{1,4})d", text):
        return float(int(days.group(1)) * DAY)
    try:
        return float(parse_duration(text))
    except ValueError:
        raise ValueError(f"min_span={text} is not a duration; write 7d, 36h, 90m or 0") from None


def _url(value: str | None) -> str | None:
    if value is None:
        return None
    # It may have a password or a token even if it cannot be parsed: neither is shown.
    if "@" in value:
        raise ValueError("prometheus: a URL with a password is recorded in logs; use one without")
    if "?" in value or "#" in value:
        raise ValueError("prometheus: the address ends before ? and #, which may have a token; write http://HOST:9090")
    try:
        found = urlsplit(value)
        usable = found.scheme in ("http", "https") and bool(found.hostname) and value.isascii() and value.isprintable() and " " not in value
        _ = found.port
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"prometheus={value!r} is not the address of a Prometheus; write http://HOST:9090")
    return value.rstrip("/")


class RightSizeOptions(Frozen):
    """`watch` and `interval` in seconds; `min_span` a duration."""

    namespaces: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(_namespaces),
        LIST_OR_TEXT,
        Field(description="only workloads in these namespaces; by default all", examples=[["shop"], "shop,blog"]),
    ] = None
    watch: Annotated[
        int, Field(ge=0, le=3600, description="seconds for which this run reads; it adds to the samples of earlier runs", examples=[600])
    ] = 60
    interval: Annotated[int, Field(ge=2, le=3600, description="seconds between two reads of a run", examples=[15])] = 5
    min_span: Annotated[
        str,
        BeforeValidator(_span),
        WithJsonSchema({"type": ["string", "integer"]}),
        Field(description="nothing is lowered before it was seen for so long", examples=["14d", "36h"]),
    ] = "7d"
    prometheus: Annotated[
        str | None,
        AfterValidator(_url),
        TEXT,
        Field(
            description="the address of a Prometheus that has the kubelets' container metrics, as one more source",
            examples=["http://prometheus.example:9090"],
        ),
    ] = None
    only_objects: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(_workloads),
        LIST_OR_TEXT,
        Field(
            description="only these workloads: NAMESPACE/KIND/NAME, or NAMESPACE/NAME if one workload has that name; by default all",
            examples=[["shop/deployment/web"], "shop/deployment/web,shop/statefulset/db"],
        ),
    ] = None
    apply: Annotated[
        Boolean,
        Field(
            description="consent: apply the advice: to pods in place, then to templates, and to utilization targets of autoscalers",
            examples=[True],
        ),
    ] = False
    watch_resized: Annotated[
        int,
        Field(
            ge=0,
            le=DAY,
            description="seconds to watch resized pods for OOM kills, restarts and throttling, before the next step",
            examples=[600],
        ),
    ] = 120
    template: Annotated[
        Literal["keep", "update"],
        Field(description="whether the workloads' templates also get the amounts, which recreates their pods", examples=["keep"]),
    ] = "update"
    allow_restarts: Annotated[
        Boolean, Field(description="consent: restart containers whose resizePolicy requires it for this resize", examples=[True])
    ] = False
    format: Annotated[
        Literal["table", "json", "html"],
        choice("format", "table", "json", "html"),
        Field(description="a table for people, one JSON document, or one HTML page", examples=["json", "html"]),
    ] = "table"
    output: Output = None
    kubeconfig: Kubeconfig = None

    @model_validator(mode="after")
    def _one_document(self) -> RightSizeOptions:
        if self.apply and self.format != "table" and self.output is None:
            raise ValueError(f"apply=true shows its plan on standard output; give the {self.format} document a file: --data output=FILE")
        return self

    @property
    def read_namespaces(self) -> tuple[str, ...] | None:
        """The namespaces that must be read; None: all."""
        if self.only_objects is None:
            return self.namespaces
        return tuple(dict.fromkeys(one.partition("/")[0] for one in self.only_objects))

    def chosen(self, workload: SizedWorkload) -> bool:
        """Whether a workload is in this run."""
        named = f"{workload.namespace}/{workload.kind}/{workload.name}"
        return is_chosen(named, self.only_objects) and (self.namespaces is None or workload.namespace in self.namespaces)

    @property
    def min_span_seconds(self) -> float:
        return span_seconds(self.min_span)
