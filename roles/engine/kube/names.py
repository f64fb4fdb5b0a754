"""Names, keys and values that the API server allows, and kinds as an operator may write them. Each error has a way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from roles.engine.folding import or_none
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
            f"{kind!r} is not one of {', '.join(RESOURCES_OF_KINDS)}{did_you_mean(kind.lower(), KINDS) or ';'} "
            "only these recreate their pods from a template"
        )
    return found


def object_name(name: str) -> str:
    if not is_subdomain(name):
        raise ValueError(not_a_subdomain(name))
    return name


def workload_name(text: str, kinds: Collection[str] = tuple(RESOURCES_OF_KINDS)) -> str:
    """NAMESPACE/KIND/NAME, the kind as the API writes it; or NAMESPACE/NAME, which `whole_name` completes. Raises ValueError."""
    parts = text.strip().split("/")
    if len(parts) == 2 and parts[0].lower() in KINDS:
        raise ValueError(f"{text!r} has no namespace; write NAMESPACE/KIND/NAME, such as shop/{text}")
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is not NAMESPACE/KIND/NAME, such as shop/deployment/web")
    namespace, name = namespace_name(parts[0]), object_name(parts[-1])
    if len(parts) == 2:
        return f"{namespace}/{name}"
    if (kind := kind_name(parts[1])) not in kinds:
        raise ValueError(f"{text!r}: it must be a {' or a '.join(kinds)}, and no {kind}")
    return f"{namespace}/{kind}/{name}"


def whole_name(name: str, exists: Callable[[str, str, str], bool], kinds: Iterable[str] = tuple(RESOURCES_OF_KINDS)) -> str:
    """NAMESPACE/KIND/NAME of what `workload_name` returns. `exists` is asked for kind, namespace and name. Raises ValueError with the
    candidates if it is not one workload."""
    if name.count("/") == 2:
        return name
    namespace, _, own = name.partition("/")
    found = [kind for kind in kinds if exists(kind, namespace, own)]
    if len(found) == 1:
        return f"{namespace}/{found[0]}/{own}"
    if found:
        raise ValueError(f"{name} is {' and '.join(found)}; write {' or '.join(f'{namespace}/{kind.lower()}/{own}' for kind in found)}")
    raise ValueError(f"{name} does not exist: that namespace has no {', '.join(kinds)} of this name")


def named_alike(one: str, other: str) -> bool:
    """Whether two names, as operators write them, can mean the same workload; any other text only means itself."""
    (first, last), (kind, other_kind) = zip(_parts(one), _parts(other), strict=True)
    return first == last and (kind == other_kind or not (kind and other_kind))


def is_chosen(name: str, only: Collection[str] | None) -> bool:
    """Whether `only_objects` has a name as operators write it; None: it has all."""
    return only is None or any(named_alike(name, one) for one in only)


def _parts(text: str) -> tuple[tuple[str, ...], str]:
    """Namespace and name, and the kind."""
    parts = text.split("/")
    return ((parts[0], parts[2]), KINDS.get(parts[1].lower(), parts[1])) if len(parts) == 3 else (tuple(parts), "")


def not_one_of(name: str, known: Sequence[str], what: str) -> str:
    """Why `only_objects` cannot have a name: it is none of the data, or several; "" if it is one. `what`: as `no entry`."""
    found = [one for one in known if named_alike(name, one)]
    if len(found) > 1:
        return f"only_objects: {name!r} is {' and '.join(found)}; write one of them, or both"
    near = did_you_mean(name, known) or f"; the data has {or_none(known)}"
    return "" if found else f"only_objects: {name!r} is {what} of the data{near}"


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
