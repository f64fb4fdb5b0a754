"""What can go wrong between an operator and a Kubernetes API. Each message names host, path, rule and way out."""

from __future__ import annotations


class ApiError(Exception):
    """An API request that gave no answer that can be used. The base of all errors of this package.

    `host` is the node whose API was asked, `path` what was asked for, `rule` what happened and why, `way_out` what to do.
    """

    #: True where the same request may well succeed a moment later, without anybody doing anything.
    passing = False

    def __init__(self, host: str, path: str, rule: str, way_out: str) -> None:
        super().__init__(f"{host}: GET {path}: {rule}; {way_out}")
        self.host = host
        self.path = path
        self.rule = rule
        self.way_out = way_out


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


class Unauthorized(ApiError):
    """HTTP 401: the server does not know who we are."""


class Forbidden(ApiError):
    """HTTP 403: the server knows us, and we may not."""


class NotFound(ApiError):
    """HTTP 404: there is no such object or path."""


class Unusable(ApiError):
    """An answer came, and it is not what was asked for: another HTTP status, no JSON, a field missing."""


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used without the files of the node it came from, or at all. Names field and way out."""
