"""The Kubernetes API of one server: requests, typed answers, and errors with a way out. How a request gets there is a port (`Api`)."""

from roles.engine.api import client, errors, kubeconfig, kubectl, nodes
from roles.engine.api.client import TIMEOUT, Api, RunCommand
from roles.engine.api.errors import ApiConnectionLost, ApiError, ApiFailure, Conflict, Denied, Forbidden, NoApi, NotFound
from roles.engine.api.kubectl import KubectlApi
from roles.engine.api.metrics import GateMetric
from roles.engine.api.read import find_object, list_objects, workload_exists
from roles.engine.api.speakers import Speaker

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
    "NoApi",
    "NotFound",
    "RunCommand",
    "Speaker",
    "client",
    "errors",
    "find_object",
    "kubeconfig",
    "kubectl",
    "list_objects",
    "nodes",
    "workload_exists",
]
