"""What tests read of the API: `kubectl get --raw PATH` and `kubectl get ... -o json`, over one connection a thread. A test that waits for
evidence asks often; a kubectl on a node costs 200 ms of CPU each time, and tests of other labs wait for that."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

SECONDS = 30
# As kubectl names them -> group and version, resource, namespaced.
KINDS = {
    "pod": ("api/v1", "pods", True),
    "node": ("api/v1", "nodes", False),
    "configmap": ("api/v1", "configmaps", True),
    "deployment": ("apis/apps/v1", "deployments", True),
    "hpa": ("apis/autoscaling/v2", "horizontalpodautoscalers", True),
    "pdb": ("apis/policy/v1", "poddisruptionbudgets", True),
    "csr": ("apis/certificates.k8s.io/v1", "certificatesigningrequests", False),
}
# kubectl's options with a value -> their one name here.
VALUES = {"-n": "namespace", "--namespace": "namespace", "-l": "labelSelector", "--field-selector": "fieldSelector", "-o": "output"}

_kept = threading.local()


def get(kubeconfig: Path, arguments: Sequence[str]) -> str | None:
    """What kubectl would print for these arguments; None if it has to be asked itself: another command, or no good answer."""
    path = _raw(arguments) or _listed(arguments)
    if path is None or (body := _ask(kubeconfig, path)) is None:
        return None
    return body if _raw(arguments) else _printed(json.loads(body), "--show-managed-fields" in arguments)


def _raw(arguments: Sequence[str]) -> str | None:
    return arguments[2] if len(arguments) == 3 and tuple(arguments[:2]) == ("get", "--raw") else None


def _listed(arguments: Sequence[str]) -> str | None:
    """The path of `get KIND [NAME] -o json` with options that are known here."""
    words, given, names = list(arguments), {"namespace": "default"}, []
    while words:
        option, _, value = (word := words.pop(0)).partition("=")
        if word in ("-A", "--all-namespaces"):
            given["namespace"] = ""
        elif option in VALUES and (value or words):
            given[VALUES[option]] = value or words.pop(0)
        elif not word.startswith("-"):
            names.append(word)
        elif word != "--show-managed-fields":
            return None
    kind = KINDS.get(names[1].removesuffix("s")) if names[:1] == ["get"] and 2 <= len(names) <= 3 else None
    if kind is None or given.pop("output", "") != "json":
        return None
    version, resource, namespaced = kind
    namespace = given.pop("namespace") if namespaced else ""
    within = f"namespaces/{namespace}/" if namespace else ""
    selected = {key: value for key, value in given.items() if key.endswith("Selector")}
    return f"/{version}/{within}{resource}{''.join(f'/{name}' for name in names[2:])}{'?' + urlencode(selected) if selected else ''}"


def _printed(found: dict[str, Any], managed: bool) -> str:
    """As kubectl prints it: each item of a list says what it is."""
    items = found.get("items")
    if items is not None:
        kind, version = found["kind"].removesuffix("List"), found["apiVersion"]
        items = [{"apiVersion": version, "kind": kind, **item} for item in items]
        found = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    for one in [found] if items is None else items:
        if not managed:
            one["metadata"].pop("managedFields", None)
    return json.dumps(found, indent=4) + "\n"


def _ask(kubeconfig: Path, path: str) -> str | None:
    """The body of a good answer. A connection that the API server has closed meanwhile is opened again once."""
    for _ in range(2):
        try:
            connection = _connection(kubeconfig)
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read().decode()
        except (OSError, http.client.HTTPException, KeyError):
            _kept.__dict__.pop(str(kubeconfig), None)
            continue
        return body if answer.status == 200 else None
    return None


def _connection(kubeconfig: Path) -> http.client.HTTPSConnection:
    text = kubeconfig.read_text()
    kept, connection = _kept.__dict__.get(str(kubeconfig), ("", None))
    if kept != text or connection is None:
        said = dict(re.findall(r"^\s+(server|[a-z-]+-data): (\S+)$", text, re.MULTILINE))
        context = ssl.create_default_context(cadata=base64.b64decode(said["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(said["client-certificate-data"]) + base64.b64decode(said["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        connection = http.client.HTTPSConnection(said["server"].removeprefix("https://"), context=context, timeout=SECONDS)
        _kept.__dict__[str(kubeconfig)] = text, connection
    return connection
