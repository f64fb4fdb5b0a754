"""The Kubernetes API, read and written without a kubeconfig on the operator's disk: through SSH, one control-plane node at a time."""

from roles.engine.api import errors, etcd, kubeconfig, nodes, served
from roles.engine.api.client import TIMEOUT, Api, RunCommand
from roles.engine.api.errors import ApiConnectionLost, ApiError, ApiFailure, Conflict, Denied, Forbidden, NotFound
from roles.engine.api.kubectl import KubectlApi
from roles.engine.api.metrics import GateMetric
from roles.engine.api.read import find_object, list_objects
from roles.engine.api.speakers import Speaker
from roles.engine.api.tunnel import TunnelApi

__all__ = [
    "TIMEOUT",
    "Api",
    "ApiConnectionLost",
    "ApiError",
    "ApiFailure",
    "Conflict",
    "Denied",
    "Forbidden",
    "GateMetric",
    "KubectlApi",
    "NotFound",
    "RunCommand",
    "Speaker",
    "TunnelApi",
    "errors",
    "etcd",
    "find_object",
    "kubeconfig",
    "list_objects",
    "nodes",
    "served",
]
