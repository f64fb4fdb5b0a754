"""What can go wrong between an operator and a Kubernetes API. Each message names host, path, rule and way out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from roles.change.mask import mask_text


class ApiError(Exception):
    """An API request that gave no answer that can be used. The base of all errors of this package.

    `host` is the node whose API was asked, `verb` and `path` what was asked for (GET where nothing is said), `rule` what happened
    and why, `way_out` what to do.
    """

    #: True where the same request may well succeed a moment later, without anybody doing anything.
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

    def on(self, verb: str) -> ApiError:
        """The same error, of a request with another verb than GET."""
        self.verb = verb
        return self


class Unreachable(ApiError):
    """Nothing answers where the API should be: refused, closed in mid-answer, or HTTP 429, 500, 502, 503, 504."""

    passing = True


class Timeout(ApiError):
    """No whole answer within the time given."""

    passing = True


class ConnectionLost(ApiError):
    """The SSH connection underneath is gone: waiting does not bring it back, connecting anew does."""


class ForwardingForbidden(ApiError):
    """The node's sshd does not forward ports (AllowTcpForwarding, PermitOpen, DisableForwarding), and kubectl was no way."""


class TLS(ApiError):
    """The server did not prove to be this cluster's API, or would not speak TLS with us."""


class Untold(ApiError):
    """Nothing was asked: to ask would have given a secret to a peer that cannot be verified."""


class Unauthorized(ApiError):
    """HTTP 401: the server does not know who we are."""


class Forbidden(ApiError):
    """HTTP 403: the server knows us, and we may not; or an admission plugin has a rule against it."""

    #: What RBAC says no to; None where something else refused.
    refusal: RbacRefusal | None = None


class NotFound(ApiError):
    """HTTP 404: there is no such object or path."""


class Conflict(ApiError):
    """HTTP 409: the object is not what the request takes it for, or fields of it belong to others.

    `owners` are the fields that other managers own and that a server-side apply would have changed; empty for another conflict.
    """

    owners: tuple[Owner, ...] = ()


class Gone(ApiError):
    """HTTP 410: a list was asked to go on from a state that the API has forgotten."""


class Invalid(ApiError):
    """HTTP 400 or 422: the API understood the object and refuses it by its rules (unknown field, bad value, immutable field)."""


class Unusable(ApiError):
    """An answer came, and it is not what was asked for: another HTTP status, no JSON, a field missing."""


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used without the files of the node it came from, or at all. Names field and way out."""


@dataclass(frozen=True)
class Owner:
    """A field (as `.spec.replicas`) and the field manager that owns it."""

    manager: str
    field: str


@dataclass(frozen=True)
class RbacRefusal:
    """The parts of an RBAC refusal: identity, verb, resource with its API group (as in a Role), where."""

    identity: str
    verb: str
    resource: str
    scope: str


# apiserver/pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage). Names of users may hold anything but a quote.
_RBAC = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) '
    r'(?:resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)" (?P<scope>at the cluster scope|in the namespace "[^"]*")'
    r'|path "(?P<path>[^"]*)")'
)
# apimachinery/pkg/util/managedfields/internal/conflict.go (printManager)
_OWNER = re.compile(r'conflict with "(?P<manager>(?:[^"\\]|\\.)*)"')


def rbac_refusal(text: str) -> RbacRefusal | None:
    """From the message of a 403; None where it is no refusal by RBAC. Pure."""
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
