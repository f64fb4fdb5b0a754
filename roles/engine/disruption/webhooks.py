"""Webhooks that must answer, and the pods that serve behind them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.disruption.owners import DisruptionObjects
from roles.engine.kube import Object, is_ready, namespace_and_name
from roles.engine.kube.fields import labels_of, name_of, spec_of
from roles.engine.kube.pods import is_alive
from roles.engine.kube.selectors import label_selector

WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


@dataclass(frozen=True)
class Webhook:
    """One that must answer. `where`: KIND NAME of its configuration; `service`: NAMESPACE/NAME; `backends`: the pods that serve."""

    where: str
    hook: Mapping[str, Any]
    service: str
    backends: tuple[Object, ...]

    @property
    def asks_about_pods(self) -> bool:
        """It is asked when a pod is created."""
        return any(
            {"", "*"} & {*(rule.get("apiGroups") or ())}
            and {"pods", "*", "*/*", "pods/*"} & {*(rule.get("resources") or ())}
            and {"CREATE", "*"} & {*(rule.get("operations") or ())}
            for rule in self.hook.get("rules") or ()
        )


def webhooks(live: DisruptionObjects) -> Iterator[Webhook]:
    """All that must answer, and whose Service exists."""
    by_namespace: dict[str, list[Object]] = {}
    for pod in live.of("Pod"):
        by_namespace.setdefault(namespace_and_name(pod)[0], []).append(pod)
    for kind in WEBHOOKS:
        for item in live.of(kind):
            for hook in item.get("webhooks") or ():
                if (key := service_of(hook)) is None or (service := live.find("Service", *key)) is None:
                    continue
                selector = spec_of(service).get("selector") or {}
                chosen = label_selector({"matchLabels": selector} if selector else None)
                there = (pod for pod in by_namespace.get(key[0], ()) if chosen.matches(labels_of(pod)))
                backends = tuple(pod for pod in there if is_ready(pod) and is_alive(pod))
                yield Webhook(f"{kind} {name_of(item)}", hook, "/".join(key), backends)


def service_of(hook: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the Service that must answer for a webhook; None if it may fail (failurePolicy Ignore), or is elsewhere."""
    service = (hook.get("clientConfig") or {}).get("service")
    if not service or hook.get("failurePolicy") == "Ignore":
        return None
    return str(service.get("namespace") or ""), str(service.get("name") or "")
