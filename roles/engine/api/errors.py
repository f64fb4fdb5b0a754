"""The errors of requests to a Kubernetes API. Each message names host, path, rule and way out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from roles.engine.transaction import mask_text


class ApiError(Exception):
    """An API request without a usable answer. The base of all errors of this package.

    `host` is the node whose API was asked, `verb` and `path` the request (GET by default), `rule` what happened and why, `way_out` what to
    do.
    """

    #: True if the same request may succeed a moment later by itself.
    passing = False

    def __init__(self, host: str, path: str, rule: str, way_out: str) -> None:
        # The API quotes the object that it refuses.
        rule = mask_text(rule)
        super().__init__(host, path, rule, way_out)
        self.host = host
        self.verb = "GET"
        self.path = path
        self.rule = rule
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.host}: {self.verb} {self.path}: {self.rule}; {self.way_out}"


class Unreachable(ApiError):
    """Nothing answers at the API's address: refused, closed during the answer, or HTTP 429, 500, 502, 503, 504."""

    passing = True


class Timeout(ApiError):
    """No complete answer within the time limit."""

    passing = True


class ApiConnectionLost(ApiError):
    """The SSH connection underneath is lost: waiting does not help, reconnecting does."""


class ForwardingForbidden(ApiError):
    """The node's sshd does not forward ports (AllowTcpForwarding, PermitOpen, DisableForwarding), and kubectl could not be used."""


class EvictionRefused(ApiError):
    """The API server does not evict a pod (pkg/registry/core/pod/storage/eviction.go). `budget`: its budget allows none now (HTTP 429);
    else more than one budget selects it (HTTP 500), and the same request never succeeds. `cause`: the server's reason."""

    budget = False
    cause = ""


class TLS(ApiError):
    """The server did not prove to be this cluster's API, or the TLS handshake failed."""

    #: Why its certificate is not valid, in OpenSSL's words; "" if the handshake failed for another reason.
    verify_message = ""


class UnverifiedPeer(ApiError):
    """Nothing was sent: the request would have given a secret to a peer that cannot be verified."""


class Unauthorized(ApiError):
    """HTTP 401: the server does not know who we are."""


class Forbidden(ApiError):
    """HTTP 403: the server knows us, but we may not do this; or an admission plugin refuses it."""

    #: What RBAC refused; None if something else refused the request.
    refusal: RbacRefusal | None = None
    #: Its namespace is being deleted, and all that is in it: nothing can be created there, not even an eviction.
    ending_namespace = False


class NotFound(ApiError):
    """HTTP 404: there is no such object or path."""


class Conflict(ApiError):
    """HTTP 409: the object is not the one that the request expects, or other managers own fields of it.

    `owners` are the fields that other managers own and that a server-side apply would have changed; empty for another conflict.
    """

    owners: tuple[Owner, ...] = ()


class Expired(ApiError):
    """HTTP 410: a list should continue from a state that the API has forgotten."""


class Invalid(ApiError):
    """HTTP 400 or 422: the API understood the object and refuses it by its rules (unknown field, bad value, immutable field)."""


class Unusable(ApiError):
    """The answer is not of the expected form: another HTTP status, not JSON, a missing field."""


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used without the files of the node it came from, or at all. Names field and way out."""


@dataclass(frozen=True)
class Owner:
    """A field (as `.spec.replicas`) and the field manager that owns it."""

    manager: str
    field: str


@dataclass(frozen=True)
class RbacRefusal:
    """The parts of an RBAC refusal: identity, verb, resource with its API group (as in a Role), scope."""

    identity: str
    verb: str
    resource: str
    scope: str


# apiserver/pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage). Names of users may have any character but a quote.
_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) '
    r'(?:resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)" (?P<scope>at the cluster scope|in the namespace "[^"]*")'
    r'|path "(?P<path>[^"]*)")'
)
# apimachinery/pkg/util/managedfields/internal/conflict.go (printManager)
_OWNER = re.compile(r'conflict with "(?P<manager>(?:[^"\\]|\\.)*)"')


def rbac_refusal(text: str) -> RbacRefusal | None:
    """From the message of a 403; None if RBAC did not refuse the request. Pure."""
    found = _RBAC.search(text)
    if found is None:
        return None
    resource = found["path"] or found["resource"] + (f".{found['group']}" if found["group"] else "")
    return RbacRefusal(found["user"], found["verb"], resource, found["scope"] or "as a path")


def owners(body: bytes) -> tuple[Owner, ...]:
    """The owners of fields that a server-side apply would have changed, from the Status of a 409. Pure."""
    try:
        causes: Any = json.loads(body)["details"]["causes"]
        found = []
        for cause in causes:
            if cause.get("reason") == "FieldManagerConflict" and (said := _OWNER.search(str(cause.get("message", "")))):
                found.append(Owner(said["manager"], str(cause.get("field", ""))))
        return tuple(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


#: An apply with a field that the kind does not have is a 500 (apimachinery/pkg/util/managedfields/internal/structuredmerge.go).
_UNTYPED = "failed to create typed patch object"
_NOBODY = "system:anonymous"
# k8s.io/api: policy/v1 DisruptionBudgetCause, core/v1 NamespaceTerminatingCause; eviction.go for a pod with more than one budget.
_BUDGET, _ENDING_NAMESPACE = "DisruptionBudget", "NamespaceTerminating"
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget"
_BUSY = frozenset({429, 500, 502, 503, 504})


def by_status(host: str, path: str, status: int, body: bytes) -> ApiError:
    """The error for an answer with this HTTP status, with the server's own words. Pure."""
    said = _said(body)
    if status == 401:
        return Unauthorized(
            host, path, f"401 Unauthorized: the API does not accept these credentials ({said})",
            "the certificate may have expired: `kubeadm certs check-expiration`",
        )  # fmt: skip
    if status == 403:
        forbidden = _forbidden(host, path, said)
        forbidden.ending_namespace = any(reason == _ENDING_NAMESPACE for reason, _ in causes(body))
        return forbidden
    if status == 404:
        return NotFound(host, path, f"404 Not Found ({said})", "check the name; this version may not have the path")
    if status == 409:
        return _conflict(host, path, said, body)
    if status == 410:
        return Expired(host, path, f"410 Gone ({said})", "list from the beginning")
    if status in (400, 422) or (status == 500 and said.startswith(_UNTYPED)):
        return Invalid(host, path, f"HTTP {status}: the API refuses the object ({said})", "correct what it names")
    if (refused := _eviction_refused(host, path, status, body, said)) is not None:
        return refused
    if status in _BUSY:
        return Unreachable(host, path, f"HTTP {status}: the API, or the node behind it, is not ready ({said})", "try again")
    return Unusable(host, path, f"HTTP {status} ({said})", "is this the address of a Kubernetes API?")


def causes(body: bytes) -> tuple[tuple[str, str], ...]:
    """The (reason, message) of each cause in a Status; none if it is not one. Pure."""
    try:
        found: Any = json.loads(body)["details"]["causes"]
        return tuple((str(one.get("reason", "")), str(one.get("message", ""))) for one in found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _eviction_refused(host: str, path: str, status: int, body: bytes, said: str) -> EvictionRefused | None:
    budget = next((message for reason, message in causes(body) if reason == _BUDGET), "") if status == 429 else ""
    if not budget and not (status == 500 and said.startswith(_TWO_BUDGETS)):
        return None
    cause = budget or said
    way_out = "it can be evicted once the budget allows it" if budget else "let only one PodDisruptionBudget select it"
    error = EvictionRefused(host, path, f"HTTP {status}: {cause}", way_out)
    error.budget, error.cause = bool(budget), mask_text(cause)
    return error


def _forbidden(host: str, path: str, said: str) -> Forbidden:
    refusal = rbac_refusal(said)
    if refusal is not None and refusal.identity == _NOBODY:
        # A controller-manager or scheduler that started while the API was unavailable reads the clients' CA from there as soon as it can
        # (apiserver/pkg/server/dynamiccertificates/configmap_cafile_content.go), which took 80 s.
        error = Forbidden(
            host, path, f"403 Forbidden: it treats these credentials as anonymous ({said})",
            "a component that started while the API was unavailable accepts no credentials until it has read the cluster's CA: try again "
            "in two minutes; for an API server, check the kubeconfig's user",
        )  # fmt: skip
        error.passing = True
        return error
    if refusal is not None:
        error = Forbidden(
            host, path,
            f"403 Forbidden: RBAC: {refusal.identity!r} may not {refusal.verb} {refusal.resource} {refusal.scope} ({said})",
            f"grant {refusal.identity!r} the verb {refusal.verb} on {refusal.resource} with a (Cluster)Role, "
            "or use the credentials of a cluster admin (admin.conf, or super-admin.conf from 1.29)",
        )  # fmt: skip
        error.refusal = refusal
        return error
    return Forbidden(
        host, path, f"403 Forbidden: these credentials may not do it, or an admission plugin refuses it ({said})",
        "use those of a cluster admin (admin.conf, or super-admin.conf from 1.29)",
    )  # fmt: skip


def _conflict(host: str, path: str, said: str, body: bytes) -> Conflict:
    found = owners(body)
    if found:
        owned = ", ".join(f"{owner.field} is owned by the field manager {owner.manager!r}" for owner in found)
        error = Conflict(
            host, path, f"409 Conflict: {owned}",
            "let that manager set it, or take it over by --data force=true (it may set it back)",
        )  # fmt: skip
        error.owners = found
        return error
    return Conflict(
        host,
        path,
        f"409 Conflict: the object was changed or replaced since it was read ({said})",
        "run it again",
    )


def _said(body: bytes) -> str:
    """The server's own words on one line: the message of a Status object, the failed checks of /readyz, else the text; cut at 300
    characters."""
    text = body[:65536].decode("utf-8", "replace")
    text = "; ".join(line for line in text.splitlines() if line.startswith("[-]")) or text
    try:
        found = json.loads(text)
        text = str(found.get("message") or text) if isinstance(found, dict) else text
    except ValueError:
        pass
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 300 else text[:300] + "..."
