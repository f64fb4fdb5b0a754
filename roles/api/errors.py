"""What can go wrong on the way to the Kubernetes API, one class each, so that callers and operators can tell them apart."""

from __future__ import annotations


class ApiError(Exception):
    """A request that was not answered as asked. Names the node it went through, the path and what was said."""


class Unreachable(ApiError):
    """Nothing answers there: the API server is down or starting, or the tunnel to its node is gone."""


class Unauthorized(ApiError):
    """401: the credentials are not taken."""


class Forbidden(ApiError):
    """403: the identity may not read this."""


class NotFound(ApiError):
    """404: no such object or path."""


class ServerError(ApiError):
    """5xx, or an answer that is not what this path gives."""


class ForwardingRefused(ApiError):
    """sshd on the node forbids forwarding (AllowTcpForwarding no); kubectl on the node is used then."""
