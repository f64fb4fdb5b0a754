"""The errors of requests to a Kubernetes API. Each message names host, path, rule and way out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from roles.engine.api.speakers import OF_DISTRUST, RbacRefusal, Speaker, Spoken, spoken_by
from roles.engine.bounds import read_json
from roles.engine.transaction import mask_text


class ApiFailure(Exception):
    """A question to an API has no usable answer: none was given (ApiError), or there is no API to ask."""

    #: True if the same request may succeed a moment later by itself.
    passing = False


class NoApi(ApiFailure):
    """There is no API server that can be asked now; says why."""

    passing = True


class ApiError(ApiFailure):
    """An API request without a usable answer. The base of all errors of this package.

    `host` is the node whose API was asked, `verb` and `path` the request (GET by default), `rule` what happened and why, `way_out` what to
    do.
    """

    #: Who gave the answer; the API server itself, if there was one.
    speaker = Speaker.API_SERVER

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
    """Nothing answers at the API's address: refused, closed during the answer, or HTTP 429, 500, 502, 503, 504 of the server itself or of
    what it needs to answer (`speaker`)."""

    passing = True


class Timeout(ApiError):
    """No complete answer within the time limit."""

    passing = True


class ApiConnectionLost(ApiError):
    """The SSH connection underneath is lost: waiting does not help, reconnecting does."""


class ForwardingForbidden(ApiError):
    """The node's sshd does not forward ports (AllowTcpForwarding, PermitOpen, DisableForwarding), and kubectl could not be used."""


class Denied(ApiError):
    """Something that the API server asks before it answers has refused the request, whatever the status code: an admission webhook or
    policy, a quota, another admission plugin; or the kubelet behind it. An answer to this very request: neither the API nor the
    credentials are at fault. Or the webhook does not answer: then it is `passing`, but for evictions, whose caller asks again itself.
    `cause`: who, and its words."""

    cause = ""


class KubeletDistrusted(Denied):
    """The API server has not asked a kubelet, since the CA that it demands (--kubelet-certificate-authority) does not prove the certificate
    that the kubelet serves. Waiting does not help. `authority`: the path of that CA ("": not known)."""

    authority = ""

    def __str__(self) -> str:
        where = f" (its CA is {self.authority} on {self.host})" if self.authority else ""
        return f"{self.host}: {self.verb} {self.path}: {self.rule}{where}; {self.way_out}"


class EvictionRefused(ApiError):
    """The API server does not evict a pod (pkg/registry/core/pod/storage/eviction.go). `budget`: its budget allows none now (HTTP 429);
    else more than one budget selects it (HTTP 500), and the same request never succeeds. `cause`: the server's reason."""

    speaker = Speaker.BUDGET
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
    """HTTP 403: the server knows us, but we may not do this."""

    #: What RBAC refused; None if the answer does not say who refused the request.
    refusal: RbacRefusal | None = None


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


# apimachinery/pkg/util/managedfields/internal/conflict.go (printManager)
_OWNER = re.compile(r'conflict with "(?P<manager>(?:[^"\\]|\\.)*)"')


def owners(body: bytes) -> tuple[Owner, ...]:
    """The owners of fields that a server-side apply would have changed, from the Status of a 409. Pure."""
    found = ((_OWNER.search(message), field) for reason, message, field in causes(body) if reason == "FieldManagerConflict")
    return tuple(Owner(said["manager"], field) for said, field in found if said)


#: An apply with a field that the kind does not have is a 500 (apimachinery/pkg/util/managedfields/internal/structuredmerge.go).
_UNTYPED = "failed to create typed patch object"
_NOBODY = "system:anonymous"
# k8s.io/api: policy/v1 DisruptionBudgetCause; eviction.go for a pod with more than one budget.
_BUDGET = "DisruptionBudget"
_TWO_BUDGETS = "This pod has more than one PodDisruptionBudget"
_BUSY = frozenset({429, 500, 502, 503, 504})
_ADMIN = "the credentials of a cluster admin (admin.conf, or super-admin.conf from 1.29)"
#: What is to be done where the kubelet refuses the API server (pkg/kubelet/server/server.go: InstallAuthFilter).
_OF_KUBELET = {
    401: "it does not accept the API server's --kubelet-client-certificate: compare it with the kubelet's clientCAFile",
    403: "it lets the API server's user not do this: grant that user system:kubelet-api-admin, or see the kubelet's authorization.mode",
}


def by_status(host: str, path: str, status: int, body: bytes) -> ApiError:
    """The error for an answer with this HTTP status: by who gave it, then by the status; with the speaker's own words. Pure."""
    spoken = spoken_by(path, body)
    error = _by_speaker(host, path, status, spoken) or _by_code(host, path, status, body, spoken)
    error.speaker = Speaker.AUTHENTICATION if isinstance(error, Unauthorized) else spoken.speaker
    if isinstance(error, EvictionRefused):
        error.speaker = Speaker.BUDGET
    return error


def _by_speaker(host: str, path: str, status: int, spoken: Spoken) -> ApiError | None:
    """None if the status code must do."""
    if spoken.refusal is not None:
        return _unauthorized_by_rbac(host, path, spoken.refusal, spoken.words)
    rule = f"HTTP {status}: {spoken.sentence}"
    if spoken.speaker is Speaker.BUDGET:
        return _eviction_refused(host, path, status, spoken.words, budget=True)
    if spoken.speaker is Speaker.KUBELET and status in _OF_KUBELET:
        return _denied(host, path, rule, _OF_KUBELET[status], spoken)
    if spoken.speaker is Speaker.ADMISSION:
        way_out = "an admission plugin of the API server has this rule (--enable-admission-plugins), and not RBAC: correct what it names"
        return _denied(host, path, rule, way_out, spoken)
    if spoken.speaker is Speaker.OTHER and status < 500:
        return Unusable(host, path, rule, "is this the address of a Kubernetes API, and not that of a load balancer or a proxy?")
    if spoken.form is None:
        return None
    if spoken.speaker in _NOT_ASKED:
        return Unreachable(host, path, rule, spoken.way_out) if spoken.passing else _denied(host, path, rule, spoken.way_out, spoken)
    return _denied(host, path, rule, spoken.way_out, spoken)


#: They do not judge a request: without them the API server cannot answer it.
_NOT_ASKED = (Speaker.API_SERVER, Speaker.STORAGE, Speaker.CONVERSION, Speaker.AGGREGATED, Speaker.KUBELET, Speaker.TUNNEL)


def _denied(host: str, path: str, rule: str, way_out: str, spoken: Spoken) -> Denied:
    error = (KubeletDistrusted if spoken.form is OF_DISTRUST else Denied)(host, path, rule, way_out)
    error.cause = mask_text(spoken.sentence)
    error.passing = spoken.passing and not path.partition("?")[0].endswith("/eviction")
    return error


def _by_code(host: str, path: str, status: int, body: bytes, spoken: Spoken) -> ApiError:
    said = spoken.words
    if status == 401:
        return Unauthorized(
            host, path, f"401 Unauthorized: the API does not accept these credentials ({said})",
            "the certificate may have expired: `kubeadm certs check-expiration`",
        )  # fmt: skip
    if status == 403:
        return Forbidden(
            host, path, f"403 Forbidden: the answer does not say who refuses it ({said})",
            "see the API server's log, or its audit log",
        )  # fmt: skip
    if status == 404:
        return NotFound(host, path, f"404 Not Found ({said})", "check the name; this version may not have the path")
    if status == 409:
        return _conflict(host, path, said, body)
    if status == 410:
        return Expired(host, path, f"410 Gone ({said})", "list from the beginning")
    if status in (400, 422) or (status == 500 and said.startswith(_UNTYPED)):
        return Invalid(host, path, f"HTTP {status}: the API refuses the object ({said})", "correct what it names")
    budget = next((message for reason, message, _ in causes(body) if reason == _BUDGET), "") if status == 429 else ""
    if budget or (status == 500 and said.startswith(_TWO_BUDGETS)):
        return _eviction_refused(host, path, status, budget or said, budget=bool(budget))
    if status in _BUSY:
        return Unreachable(host, path, f"HTTP {status}: {spoken.speaker.value} is not ready ({said})", "try again")
    return Unusable(host, path, f"HTTP {status} ({said})", "is this the address of a Kubernetes API?")


def causes(body: bytes) -> tuple[tuple[str, str, str], ...]:
    """Reason, message and field of each cause in a Status; none if it is not one. Pure."""
    try:
        found: Any = read_json(body)["details"]["causes"]
        return tuple((str(one.get("reason", "")), str(one.get("message", "")), str(one.get("field", ""))) for one in found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _eviction_refused(host: str, path: str, status: int, cause: str, *, budget: bool) -> EvictionRefused:
    way_out = "it can be evicted once the budget allows it" if budget else "let only one PodDisruptionBudget select it"
    error = EvictionRefused(host, path, f"HTTP {status}: {cause}", way_out)
    error.budget, error.cause = budget, mask_text(cause)
    return error


def _unauthorized_by_rbac(host: str, path: str, refusal: RbacRefusal, said: str) -> Forbidden:
    if refusal.identity == _NOBODY:
        # A controller-manager or scheduler that started while the API was unavailable reads the clients' CA from there as soon as it can
        # (apiserver/pkg/server/dynamiccertificates/configmap_cafile_content.go), which took 80 s.
        error = Forbidden(
            host, path, f"403 Forbidden: it treats these credentials as anonymous ({said})",
            "a component that started while the API was unavailable accepts no credentials until it has read the cluster's CA: try again "
            "in two minutes. For an API server, check the kubeconfig's user",
        )  # fmt: skip
        error.passing = True
        return error
    who = "RBAC and another authorizer" if refusal.elsewhere else "RBAC"
    place = "where the other authorizer says it, or with a (Cluster)Role" if refusal.elsewhere else "with a (Cluster)Role"
    error = Forbidden(
        host, path,
        f"403 Forbidden: {who}: {refusal.identity!r} may not {refusal.verb} {refusal.resource} {refusal.scope} ({said})",
        f"grant {refusal.identity!r} the verb {refusal.verb} on {refusal.resource} {place}, or use {_ADMIN}",
    )  # fmt: skip
    error.refusal = refusal
    return error


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
    return Conflict(host, path, f"409 Conflict: the object was changed or replaced since it was read ({said})", "run it again")
