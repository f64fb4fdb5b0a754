"""The Kubernetes API without a kubeconfig on the operator's disk."""

from roles.api.client import Api, KubectlApi, TunnelApi, get_json
from roles.api.credentials import Identity, read_kubeconfig
from roles.api.errors import ApiError, ForwardingRefused

__all__ = ["Api", "ApiError", "ForwardingRefused", "Identity", "KubectlApi", "TunnelApi", "get_json", "read_kubeconfig"]
