"""What Kubernetes says of its objects: identity, owners, field managers, names, selectors, pods, workloads, amounts.

Pure: raw JSON goes in, and nothing is asked. What is for all kinds is here; what is for one of them is in its module.
"""

from roles.engine.kube import amounts, field_managers, fields, matching, names, pods, quotas, resources, selectors, times, workloads
from roles.engine.kube.objects import (
    Object,
    OwnerRef,
    condition,
    controller,
    full_name,
    holds,
    is_ending,
    is_ready,
    namespace_and_name,
    owner_ref,
    owner_refs,
    preconditions,
    uid,
    version,
)

__all__ = [
    "Object",
    "OwnerRef",
    "amounts",
    "condition",
    "controller",
    "field_managers",
    "fields",
    "full_name",
    "holds",
    "is_ending",
    "is_ready",
    "matching",
    "names",
    "namespace_and_name",
    "owner_ref",
    "owner_refs",
    "pods",
    "preconditions",
    "quotas",
    "resources",
    "selectors",
    "times",
    "uid",
    "version",
    "workloads",
]
