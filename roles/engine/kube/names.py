"""Names, keys and values that the API server allows, and kinds as an operator may write them. Each error has a way out."""

from __future__ import annotations

import re

from roles.engine.inputs import did_you_mean

# apimachinery/pkg/util/validation/validation.go
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z")
_DNS_LABEL = re.compile(rf"{_LABEL}\Z")
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_SUBDOMAIN_LENGTH, _NAME_LENGTH = 253, 63

#: Kinds that roll out a pod template, by what an operator may write for them.
KINDS = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), "Deployment"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "StatefulSet"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), "DaemonSet"),
}
RESOURCES_OF_KINDS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}


def is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.match(text) is not None


def not_a_subdomain(name: str) -> str:
    return (
        f"{name!r} is not a valid object name: lower-case letters, digits, '-' and '.', a letter or digit first and last, "
        f"at most {_SUBDOMAIN_LENGTH} characters (a DNS subdomain)"
    )


def key_problem(key: str) -> str | None:
    """Why this is not a key of a label, a taint or, in lower case, an annotation (apimachinery, IsQualifiedName); None if it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return f"{key!r}: {prefix!r} before the '/' is not a DNS subdomain"
    if len(name) > _NAME_LENGTH or not _KEY.match(name):
        return (
            f"{key!r} is not a valid key: letters, digits, '-', '_' and '.', a letter or digit first and last, "
            f"at most {_NAME_LENGTH} characters"
        )
    return None


def value_problem(key: str, value: str) -> str | None:
    """Why this is not a value of a label or a taint (apimachinery, IsValidLabelValue); None if it is one."""
    if not value or (len(value) <= _NAME_LENGTH and _KEY.match(value)):
        return None
    return (
        f"{key}: {value!r} is not a valid value of a label: letters, digits, '-', '_' and '.', a letter or digit first and last, "
        f"at most {_NAME_LENGTH} characters"
    )


def namespace_name(name: str) -> str:
    if len(name) > _NAME_LENGTH or not _DNS_LABEL.match(name):
        raise ValueError(
            f"{name!r} is not a valid namespace: lower-case letters, digits and '-', at most {_NAME_LENGTH} characters (a DNS label)"
        )
    return name


def kind_name(kind: str) -> str:
    found = KINDS.get(kind.lower())
    if found is None:
        raise ValueError(
            f"{kind!r} is not one of {', '.join(RESOURCES_OF_KINDS)}{did_you_mean(kind.lower(), KINDS)}; "
            "only these recreate their pods from a template"
        )
    return found


def object_name(name: str) -> str:
    if not is_subdomain(name):
        raise ValueError(not_a_subdomain(name))
    return name


def workload_name(text: str) -> str:
    """NAMESPACE/KIND/NAME, the kind as the API writes it. Raises ValueError."""
    parts = text.split("/")
    if len(parts) != 3:
        raise ValueError(f"{text!r} is not NAMESPACE/KIND/NAME, such as shop/deployment/web")
    return f"{namespace_name(parts[0])}/{kind_name(parts[1])}/{object_name(parts[2])}"


def namespaced_selector(text: str) -> str:
    """NAMESPACE/SELECTOR. Raises ValueError."""
    namespace, slash, selector = text.partition("/")
    if not slash or not selector.strip():
        raise ValueError(f"{text!r} is not NAMESPACE/SELECTOR, such as shop/app=web")
    return f"{namespace_name(namespace)}/{selector.strip()}"


def namespaced_name(namespace: str, name: str, example: str) -> str:
    """NAMESPACE/NAME. Raises ValueError."""
    if not namespace or not name:
        raise ValueError(f"{'/'.join(part for part in (namespace, name) if part)!r} does not have the form {example}")
    return f"{namespace_name(namespace)}/{object_name(name)}"
