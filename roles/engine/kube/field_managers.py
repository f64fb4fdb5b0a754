"""Who writes a field: people, by their tools, or a controller, which may write it again without anybody. Pure.

A field manager is a name that a client chooses; without one it is the begin of its User-Agent (apiserver/pkg/endpoints/handlers:
managerOrUserAgent). So the tools of people are a table, and every other name is a controller's.
"""

from __future__ import annotations

import re

from roles.engine.kube.objects import FIELD_MANAGER, Object, writers

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


def is_people(manager: str) -> bool:
    """The name is that of a tool by which people write."""
    return _PEOPLE.fullmatch(manager) is not None


def controllers_of(item: Object, *fields: str) -> tuple[str, ...]:
    """The managers of a field that are controllers; `fields` is its path in FieldsV1. Empty if only people have written it, or if nobody
    knows: an API server may have dropped the managers."""
    return tuple(dict.fromkeys(name for name in writers(item, *fields) if name and not is_people(name)))
