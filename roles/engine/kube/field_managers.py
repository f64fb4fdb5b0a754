"""Who writes a field: people, by their tools, or a controller, which may write it again without anybody. Pure.

A field manager is a name that a client chooses; without one it is the begin of its User-Agent (apiserver/pkg/endpoints/handlers:
managerOrUserAgent). So the tools of people are a table, and every other name is a controller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from roles.engine.kube.fields import meta_of
from roles.engine.kube.objects import Object

#: What the API server records as the owner of the fields that daytwo sets (metadata.managedFields).
FIELD_MANAGER = "daytwo"

#: The names by which people write, or by which what people have written is applied: as regular expressions, and the tool.
#: docs/disruption.md has them.
PEOPLE: tuple[tuple[str, str], ...] = (
    (re.escape(FIELD_MANAGER), "daytwo"),
    (r"kubectl\b.*|before-first-apply|oc", "kubectl, oc"),
    (r"helm|Helm|helmfile|werf", "Helm"),
    (r"argocd.*|argo-cd.*|gitops-engine", "Argo CD"),
    (r"kustomize-controller|helm-controller|flux.*|gotk.*|weave-gitops.*", "Flux"),
    (r"fleet.*|rancher.*|configsync.*|kapp.*|kpt.*|kustomize", "Fleet, Rancher, Config Sync, kapp, kpt, kustomize"),
    (r"terraform.*|hashicorp.*|opentofu.*|pulumi.*|crossplane.*", "Terraform, OpenTofu, Pulumi, Crossplane"),
    (r"ansible.*|openapi-generator|python-requests.*|kubernetes-python.*", "Ansible, scripts in Python"),
    (r"mozilla|node-fetch|axios|k9s|lens|freelens|openlens|headlamp.*|dashboard.*|kubernetes-dashboard.*|octant|aptakube|portainer.*",
     "consoles and browsers"),
    (r"curl|wget|skaffold|tilt|tanka|jsonnet|cdk8s|okteto|devspace|kluctl.*|spinnaker.*|jenkins.*|gitlab.*|github.*|kubeadm|velero.*",
     "curl, build tools, CI, kubeadm, Velero"),
)  # fmt: skip
_PEOPLE = re.compile("|".join(f"(?:{pattern})" for pattern, _ in PEOPLE), re.IGNORECASE)


def managers(item: Object, *fields: str) -> list[str]:
    """The owners of a field, as `manager` or `manager (Update)`; `fields` is its path in FieldsV1 (`f:value`)."""
    return [
        str(entry.get("manager", "")) + ("" if entry.get("operation") == "Apply" else f" ({entry.get('operation')})")
        for entry in entries(item, *fields)
    ]


def others(item: Object, *fields: str) -> list[str]:
    """The owners of a field other than daytwo, as `managers` shows them: for the API server who applied and who patched are two managers
    of one name (metadata.managedFields), and both are daytwo."""
    return [shown for shown, name in zip(managers(item, *fields), writers(item, *fields), strict=True) if name != FIELD_MANAGER]


def is_own(item: Object, *fields: str) -> bool:
    """daytwo applied the field, and nobody else owns it; that daytwo has patched it too changes nothing."""
    return FIELD_MANAGER in managers(item, *fields) and not others(item, *fields)


def writers(item: Object, *fields: str) -> list[str]:
    """The owners of a field, by name only."""
    return [str(entry.get("manager", "")) for entry in entries(item, *fields)]


def entries(item: Object, *fields: str) -> Iterator[Object]:
    """The entries of managedFields that have a field; without one all."""
    for entry in meta_of(item).get("managedFields") or ():
        inner = entry.get("fieldsV1") or {}
        for name in fields:
            inner = inner.get(name) if isinstance(inner, Mapping) else None
        if inner is not None:
            yield entry


def only_ours(item: Object, *fields: str) -> bool:
    """daytwo is the only owner of the field, so the API server removes it when daytwo no longer applies it."""
    return managers(item, *fields) == [FIELD_MANAGER]


def is_people(manager: str) -> bool:
    """The name is that of a tool by which people write."""
    return _PEOPLE.fullmatch(manager) is not None


def controllers_of(item: Object, *fields: str) -> tuple[str, ...]:
    """The managers of a field that are controllers; `fields` is its path in FieldsV1. Empty if only people have written it, or if nobody
    knows: an API server may have dropped the managers."""
    return tuple(dict.fromkeys(name for name in writers(item, *fields) if name and not is_people(name)))
