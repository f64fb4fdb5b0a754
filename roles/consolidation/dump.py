"""The cluster as the planner reads it (roles/engine/packing/: `read`), without any name: to show somebody a plan that looks wrong. Pure.

Names, namespaces, labels and what refers to them are hashed with one salt, so what matched before still matches. Only the fields that
decide about places are there, and a text that is none of Kubernetes' own words is hashed: nothing else can get out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.consolidation.kept import DO_NOT_DISRUPT, SAFE_TO_EVICT
from roles.consolidation.plan import DELETION_COST
from roles.engine.kube import Object
from roles.engine.kube.fields import annotations_of, labels_of, status_of, with_meta
from roles.engine.kube.pods import MIRROR
from roles.engine.kube.workloads import GROUPS
from roles.engine.packing import SCALE_DOWN_DISABLED, Problem

_LENGTH = 12
#: The fields of Nodes, Pods and PodDisruptionBudgets that decide about places.
_FIELDS = frozenset((
    "metadata", "spec", "status", "name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "ownerReferences", "controller", "apiVersion", "kind",
    "nodeName", "affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution", "weight", "preference", "podAffinityTerm", "nodeSelectorTerms", "matchExpressions",
    "matchFields", "key", "operator", "values", "value", "labelSelector", "namespaceSelector", "namespaces", "topologyKey",
    "matchLabelKeys", "mismatchLabelKeys", "tolerations", "effect", "tolerationSeconds", "topologySpreadConstraints", "maxSkew",
    "minDomains", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "schedulerName", "priority", "preemptionPolicy",
    "schedulingGates", "terminationGracePeriodSeconds", "hostNetwork", "resources", "containers", "initContainers", "restartPolicy",
    "ports", "hostPort", "containerPort", "hostIP", "protocol", "volumes", "emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral",
    "claimName", "path", "taints", "unschedulable", "conditions", "type", "phase", "qosClass", "startTime", "containerStatuses",
    "initContainerStatuses", "ready", "selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy", "disruptionsAllowed",
    "currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration",
))  # fmt: skip
#: Fields whose texts are words of Kubernetes, times or amounts.
_PLAIN = frozenset((
    "operator", "effect", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "preemptionPolicy", "restartPolicy", "protocol",
    "phase", "qosClass", "type", "status", "startTime", "creationTimestamp", "deletionTimestamp", "minAvailable", "maxUnavailable",
    "unhealthyPodEvictionPolicy", "hostIP",
))  # fmt: skip
_LABELS = ("labels", "matchLabels", "nodeSelector")
#: Fields that have labels' keys as values.
_KEYS = ("topologyKey", "key", "matchLabelKeys", "mismatchLabelKeys")
_RESOURCES = ("allocatable", "capacity", "requests", "limits", "overhead", "allocatedResources")
_OWN_RESOURCES = re.compile(r"cpu|memory|pods|ephemeral-storage|hugepages-[0-9A-Za-z]+")
_ANNOTATIONS = (*DO_NOT_DISRUPT, SAFE_TO_EVICT, SCALE_DOWN_DISABLED, DELETION_COST, MIRROR)
_WORD = re.compile(r"[A-Za-z0-9:.%+-]{0,40}")
_AMOUNT = re.compile(r"[0-9.eE+-]{1,40}[A-Za-z]{0,2}")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_KUBERNETES = re.compile(r"([a-z0-9-]+\.)*(kubernetes|k8s)\.io/[A-Za-z0-9_.-]+")
_KINDS = (*GROUPS, "Node", "Pod", "PodDisruptionBudget")
_VERSIONS = ("v1", "apps/v1", "batch/v1", "policy/v1", "extensions/v1beta1")
_SCHEDULER = "default-scheduler"


def as_dump(problem: Problem, salt: bytes) -> str:
    """The JSON document of a problem. `salt`: secret, and of this document only."""
    words = _Hashed(salt)
    on = [one for one in problem.machines if not one.off]
    document = {
        "nodes": [words.of("", _kept(one.node) if one.name in problem.keep else one.node) for one in on],
        "pods": [words.of("", pod) for pod in problem.pods],
        "pdbs": [words.of("", one) for one in problem.budgets],
        "off": [
            {
                "name": words.token(one.name),
                "cost": one.cost,
                "capacity": words.of("allocatable", status_of(one.node).get("allocatable") or {}),
                "labels": words.of("labels", labels_of(one.node)),
            }
            for one in problem.machines
            if one.off
        ],
        "cost": {words.token(one.name): one.cost for one in on},
    }
    return json.dumps(document, indent=1) + "\n"


def _kept(node: Object) -> Object:
    """The node, and that it must stay."""
    return with_meta(node, annotations={**annotations_of(node), SCALE_DOWN_DISABLED: "true"})


@dataclass(frozen=True)
class _Hashed:
    """Objects with their names hashed."""

    salt: bytes

    def token(self, text: str) -> str:
        """The same for the same text, wherever it is; a valid name and label."""
        return "x" + hmac.new(self.salt, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:_LENGTH] if text else ""

    def of(self, field: str, value: Any) -> Any:
        """The value of a field."""
        if isinstance(value, Mapping):
            return self._map(field, value)
        if isinstance(value, list | tuple):
            return [self.of(field, one) for one in value]
        return self._text(field, value) if isinstance(value, str) else value

    def _map(self, field: str, value: Mapping[str, Any]) -> dict[str, Any]:
        if field in _LABELS:
            return {self._key(key): self._number_or_token(str(one)) for key, one in value.items()}
        if field in _RESOURCES:
            return {self._resource(key): one for key, one in value.items() if _AMOUNT.fullmatch(str(one))}
        if field == "annotations":
            return {key: self._note(str(value[key])) for key in _ANNOTATIONS if key in value}
        known = {*_FIELDS, *_LABELS, *_RESOURCES, "annotations"}
        return {key: self.of(key, one) for key, one in value.items() if key in known}

    def _text(self, field: str, text: str) -> str:
        if field in _KEYS:
            return self._key(text)
        if field in ("value", "values"):
            return self._number_or_token(text)
        plain = (
            (field in _PLAIN and _WORD.fullmatch(text))
            or (field == "kind" and text in _KINDS)
            or (field == "apiVersion" and text in _VERSIONS)
            or (field == "schedulerName" and text == _SCHEDULER)
        )
        return text if plain else self.token(text)

    def _key(self, key: str) -> str:
        """Kubernetes' own labels decide about zones and nodes: they keep their names."""
        return key if _KUBERNETES.fullmatch(key) or key == "metadata.name" else self.token(key)

    def _resource(self, name: str) -> str:
        return name if _OWN_RESOURCES.fullmatch(name) else f"x.example/{self.token(name)}"

    def _number_or_token(self, text: str) -> str:
        """Node selectors compare numbers (Gt, Lt)."""
        return text if _NUMBER.fullmatch(text) else self.token(text)

    def _note(self, text: str) -> str:
        return text if text in ("true", "false") or _AMOUNT.fullmatch(text) else self.token(text)
