"""What tests ask of kubectl most, asked of the API itself: one connection a thread instead of a program on a node.

A kubectl on a node costs 200 ms of CPU each time, a tenth of a whole run, and tests of other labs wait for that. What is written has the
field managers and the annotation that kubectl writes, for tests read those. All else, and all that goes wrong, is kubectl's own: `answer`
is None then, and the command is run.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

JSON = "application/json"
SECONDS = 30
PAUSE = 0.3
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# fmt: off
# kubectl's options -> their one name here; of WORDS a value follows.
WORDS = {
    "-n": "namespace", "--namespace": "namespace", "-l": "labelSelector", "--selector": "labelSelector",
    "--field-selector": "fieldSelector", "-o": "output", "--output": "output", "-f": "file", "-p": "patch", "--type": "type",
    "--subresource": "subresource", "--for": "for", "--field-manager": "fieldManager", "--timeout": "timeout", "--raw": "raw",
}
FLAGS = {
    "-A": "everywhere", "--all-namespaces": "everywhere", "--show-managed-fields": "managed", "--now": "now", "--all": "all",
    "--ignore-not-found": "lenient",
}
# fmt: on
PATCHES = {"json": "json-patch", "merge": "merge-patch", "strategic": "strategic-merge-patch"}
# Which options each command may have here.
SELECTING = {"namespace", "labelSelector", "fieldSelector"}
KNOWN = {
    "get": {*SELECTING, "output", "everywhere", "managed", "raw", "lenient"},
    "create": {"file", "namespace"},
    "apply": {"file", "namespace"},
    "delete": {*SELECTING, "now", "all", "wait", "lenient", "timeout"},
    "patch": {"namespace", "type", "patch", "subresource", "fieldManager", "output"},
    "cordon": set[str](),
    "uncordon": set[str](),
    "wait": {*SELECTING, "for", "timeout"},
    "rollout status": {"namespace", "timeout"},
}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_kept = threading.local()


class OtherwiseError(Exception):
    """Not to be done here."""


@dataclass(frozen=True)
class Kind:
    """A resource of the API: its path without a namespace, `api/v1` or `apis/GROUP/VERSION`, and what it is called."""

    version: str
    plural: str
    kind: str
    namespaced: bool
    names: frozenset[str]

    def path(self, namespace: str, name: str = "", more: str = "") -> str:
        within = f"namespaces/{namespace}/" if self.namespaced and namespace else ""
        return f"/{self.version}/{within}{self.plural}{f'/{name}' if name else ''}{f'/{more}' if more else ''}"


@dataclass
class Words:
    """A command as it was typed: its verb, its options by their one name, and all other words."""

    verb: str
    given: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return "" if "everywhere" in self.given else self.given.get("namespace", "default")

    @property
    def selected(self) -> str:
        found = {key: value for key, value in self.given.items() if key.endswith("Selector")}
        return f"?{urlencode(found)}" if found else ""


def parse(arguments: Sequence[str]) -> Words:
    """Raises OtherwiseError for a command or an option that is not known here."""
    left = list(arguments)
    verb = left.pop(0)
    if verb == "rollout" and left:
        verb = f"rollout {left.pop(0)}"
    found = Words(verb)
    while left:
        option, sign, value = (word := left.pop(0)).partition("=")
        if option in WORDS and (sign or left):
            found.given[WORDS[option]] = value if sign else left.pop(0)
        elif option == "--wait":
            found.given["wait"] = value or "true"
        elif word in FLAGS:
            found.given[FLAGS[word]] = ""
        elif word.startswith("-"):
            raise OtherwiseError
        else:
            found.names.append(word)
    if not set(found.given) <= KNOWN.get(verb, set()) or (verb not in KNOWN):
        raise OtherwiseError
    return found


def answer(kubeconfig: Path, arguments: Sequence[str], input: str | None = None, check: bool = True) -> str | None:
    """What kubectl would print for these arguments; None if it has to be asked itself. Without `check`, what is not there is an empty
    answer."""
    try:
        words = parse(arguments)
        return _DONE[words.verb](_Api(kubeconfig), words, input, check)
    except (OtherwiseError, OSError, http.client.HTTPException, ValueError, LookupError):
        return None


class _Api:
    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def ask(self, method: str, path: str, body: str | None = None, sends: str = JSON, takes: str = JSON) -> tuple[int, Any]:
        status, found = self.read(method, path, body, sends, takes)
        return status, json.loads(found)

    def read(self, method: str, path: str, body: str | None = None, sends: str = JSON, takes: str = JSON) -> tuple[int, str]:
        """Status and body. A connection that the API server has closed meanwhile is opened again once."""
        headers = {"Accept": takes, "Content-Type": sends, "User-Agent": "kubectl/lab"}
        for again in (True, False):
            try:
                connection = _connection(self.kubeconfig)
                connection.request(method, path, body, headers)
                got = connection.getresponse()
                return got.status, got.read().decode()
            except (OSError, http.client.HTTPException):
                _kept.__dict__.pop(str(self.kubeconfig), None)
                if not again:
                    raise
        raise OtherwiseError

    def good(self, method: str, path: str, body: str | None = None, sends: str = JSON) -> Any:
        status, found = self.ask(method, path, body, sends)
        if status not in (200, 201, 202):
            raise OtherwiseError
        return found

    def find(self, matches: Callable[[Kind], bool]) -> Kind:
        """The first such kind; what the API has is read again where it has none, for a definition may be new."""
        kept = f"kinds {self.kubeconfig}"
        for fresh in (False, True):
            if fresh or kept not in _kept.__dict__:
                asked = {root: self.ask("GET", f"/{root}", takes=DISCOVERY)[1] for root in ("api", "apis")}
                _kept.__dict__[kept] = [kind for root, found in asked.items() for kind in _discovered(found, root)]
            if chosen := next((kind for kind in _kept.__dict__[kept] if matches(kind)), None):
                return chosen
        raise OtherwiseError

    def kind(self, name: str) -> Kind:
        return self.find(lambda kind: name.lower() in kind.names)

    def of(self, item: dict[str, Any]) -> Kind:
        version = item["apiVersion"]
        root = f"apis/{version}" if "/" in version else f"api/{version}"
        return self.find(lambda kind: (kind.version, kind.kind) == (root, item["kind"]))

    def targets(self, words: Words) -> list[tuple[Kind, str]]:
        """What is named: KIND[,KIND] [NAME...] or KIND/NAME..."""
        if words.names and all("/" in name for name in words.names):
            return [(self.kind(kind), name) for kind, _, name in (word.partition("/") for word in words.names)]
        kinds = [self.kind(name) for name in words.names[0].split(",")]
        return [(kind, name) for kind in kinds for name in words.names[1:] or [""]]


def _discovered(found: dict[str, Any], root: str) -> Iterator[Kind]:
    """Of aggregated discovery: of each group the version that the API server prefers first."""
    for group in found["items"]:
        name = group.get("metadata", {}).get("name", "")
        for version in group["versions"]:
            for one in version.get("resources", ()):
                plural, singular = one["resource"], one.get("singularResource", "")
                names = {plural, singular, one["responseKind"]["kind"].lower(), *one.get("shortNames", ()), f"{plural}.{name}"} - {""}
                path = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                yield Kind(path, plural, one["responseKind"]["kind"], one["scope"] == "Namespaced", frozenset(names))


# ---- reading


def _get(api: _Api, words: Words, _: str | None, check: bool) -> str:
    if "raw" in words.given:
        status, body = api.read("GET", words.given["raw"])
        if status not in (200, 404) or (status == 404 and "lenient" not in words.given):
            raise OtherwiseError
        return body if status == 200 else ""
    output = words.given.get("output", "")
    if len(targets := api.targets(words)) > 1:
        if output != "json" or any(name for _, name in targets):
            raise OtherwiseError
        lists = [_listed(api.good("GET", kind.path(words.namespace) + words.selected)) for kind, _ in targets]
        items = [item for one in lists for item in one]
        return _printed({"kind": "List", "items": items}, "managed" in words.given)
    ((kind, name),) = targets
    status, found = api.ask("GET", kind.path(words.namespace, name) + words.selected)
    if status == 404 and (not check or "lenient" in words.given):
        return ""
    if status != 200:
        raise OtherwiseError
    if output == "json":
        return _printed(found, "managed" in words.given)
    items = found.get("items", [found])
    names = [item["metadata"]["name"] for item in items]
    if output == "name":
        group = kind.version.split("/")[1] if kind.version.count("/") == 2 else ""
        return "".join(f"{kind.kind.lower()}{f'.{group}' if group else ''}/{name}\n" for name in names)
    if output:
        return _by_path(found, output)
    # What kubectl prints for people: tests look for names in it.
    return "\n".join(["NAME", *names, ""]) if items else ""


def _by_path(found: Any, output: str) -> str:
    """A jsonpath of nothing but keys."""
    path = re.fullmatch(r"jsonpath=\{((?:\.[A-Za-z]+)+)\}", output)
    if path is None:
        raise OtherwiseError
    for key in path[1].split(".")[1:]:
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        return ""
    return found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))


def _listed(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of a list; each says what it is."""
    return [{"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List"), **item} for item in found["items"]]


def _printed(found: dict[str, Any], managed: bool) -> str:
    """As kubectl prints it."""
    if "items" in found:
        items = _listed(found) if found["kind"] != "List" else found["items"]
        found = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    for one in found.get("items", [found]):
        if not managed:
            one["metadata"].pop("managedFields", None)
    return json.dumps(found, indent=4) + "\n"


# ---- writing


def _make(api: _Api, words: Words, input: str | None, check: bool) -> str:
    """create and apply of what is not there yet; what is there is kubectl's, also where a part was made here."""
    if words.verb == "create" and words.names[:1] == ["namespace"] and len(words.names) == 2:
        text = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": words.names[1]}})
    elif words.given.get("file") == "-" and input and not words.names:
        text = input
    else:
        raise OtherwiseError
    asked = json.loads(text)
    items = asked["items"] if asked["kind"] == "List" else [asked]
    if words.verb == "create" and len(items) > 1:
        raise OtherwiseError
    return "".join(_made(api, words, item) for item in items)


def _made(api: _Api, words: Words, item: dict[str, Any]) -> str:
    kind, manager = api.of(item), "kubectl-create"
    metadata = item["metadata"] = {**item["metadata"]}
    namespace = metadata.get("namespace") or words.namespace
    if words.verb == "apply":
        manager = "kubectl-client-side-apply"
        metadata["annotations"] = {**(metadata.get("annotations") or {})}
        if kind.namespaced:
            metadata["namespace"] = namespace
        metadata["annotations"][LAST_APPLIED] = json.dumps(item, separators=(",", ":"), sort_keys=True) + "\n"
    query = urlencode({"fieldManager": manager, "fieldValidation": "Strict"})
    made = api.good("POST", f"{kind.path(namespace)}?{query}", json.dumps(item))
    return f"{kind.kind.lower()}/{made['metadata']['name']} created\n"


def _delete(api: _Api, words: Words, _: str | None, check: bool) -> str:
    found = []
    for kind, name in api.targets(words):
        if name:
            found.append((kind, name, ""))
        elif words.selected or "all" in words.given:
            listed = api.good("GET", kind.path(words.namespace) + words.selected)["items"]
            found += [(kind, item["metadata"]["name"], item["metadata"]["uid"]) for item in listed]
        else:
            raise OtherwiseError
    options = {"propagationPolicy": "Background", **({"gracePeriodSeconds": 1} if "now" in words.given else {})}
    gone = []
    for kind, name, _uid in found:
        status, told = api.ask("DELETE", kind.path(words.namespace, name), json.dumps(options))
        if status == 404:
            continue
        if status not in (200, 202):
            raise OtherwiseError
        gone.append((kind, name, told.get("details", told.get("metadata", {})).get("uid")))
    waits = words.given.get("wait", "true") == "true"
    if waits and not _until(words, lambda: all(_is_gone(api, kind.path(words.namespace, name), uid) for kind, name, uid in gone)):
        raise OtherwiseError
    return "".join(f'{kind.kind.lower()} "{name}" deleted\n' for kind, name, _uid in gone)


def _is_gone(api: _Api, path: str, uid: str) -> bool:
    status, found = api.ask("GET", path)
    return status == 404 or (status == 200 and found["metadata"]["uid"] != uid)


def _patch(api: _Api, words: Words, _: str | None, check: bool) -> str:
    ((kind, name),) = api.targets(words)
    if not name or words.given.get("output", "json") != "json":
        raise OtherwiseError
    sends = f"application/{PATCHES[words.given.get('type', 'strategic')]}+json"
    query = urlencode({"fieldManager": words.given.get("fieldManager", "kubectl-patch")})
    path = kind.path(words.namespace, name, words.given.get("subresource", ""))
    found = api.good("PATCH", f"{path}?{query}", words.given["patch"], sends)
    return _printed(found, managed=False) if "output" in words.given else f"{kind.kind.lower()}/{name} patched\n"


def _cordon(api: _Api, words: Words, _: str | None, check: bool) -> str:
    wanted = '{"spec":{"unschedulable":true}}' if words.verb == "cordon" else '{"spec":{"unschedulable":null}}'
    for name in words.names:
        api.good("PATCH", f"/api/v1/nodes/{name}", wanted, "application/strategic-merge-patch+json")
    return "".join(f"node/{name} {words.verb}ed\n" for name in words.names)


# ---- waiting


def _until(words: Words, done: Callable[[], bool]) -> bool:
    amount = re.fullmatch(r"(\d+)s", words.given.get("timeout", f"{SECONDS * 10}s"))
    end = time.monotonic() + int(amount[1] if amount else 0)
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE)
    return True


def _wait(api: _Api, words: Words, _: str | None, check: bool) -> str:
    wanted = re.fullmatch(r"condition=(\w+)", words.given.get("for", ""))
    targets = api.targets(words)
    if not wanted or not (words.selected or all(name for _, name in targets)):
        raise OtherwiseError

    def met() -> bool:
        found = [api.good("GET", kind.path(words.namespace, name) + words.selected) for kind, name in targets]
        items = [item for one in found for item in one.get("items", [one])]
        if not items:
            raise OtherwiseError
        return all(_has(item, wanted[1]) for item in items)

    if _until(words, met):
        return "".join(f"{kind.kind.lower()}/{name} condition met\n" for kind, name in targets)
    if check:
        # kubectl says what it has waited for in vain.
        raise OtherwiseError
    return ""


def _has(item: dict[str, Any], condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in item.get("status", {}).get("conditions", ()))


def _rolled_out(api: _Api, words: Words, _: str | None, check: bool) -> str:
    ((kind, name),) = api.targets(words)
    if not check or kind.kind not in _ROLLED:
        raise OtherwiseError
    if not _until(words, lambda: _is_rolled_out(api.good("GET", kind.path(words.namespace, name)))):
        raise OtherwiseError
    return f"{kind.kind.lower()} {name} successfully rolled out\n"


def _is_rolled_out(item: dict[str, Any]) -> bool:
    """kubectl's rules (k8s.io/kubectl, pkg/polymorphichelpers/rollout_status.go)."""
    status = item.get("status", {})
    return item["metadata"]["generation"] <= status.get("observedGeneration", 0) and _ROLLED[item["kind"]](item["spec"], status)


def _deployment(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    if any(one["type"] == "Progressing" and one.get("reason") == "ProgressDeadlineExceeded" for one in status.get("conditions", ())):
        raise OtherwiseError
    updated = status.get("updatedReplicas", 0)
    return spec["replicas"] <= updated == status.get("replicas", 0) <= status.get("availableReplicas", 0)


def _daemon_set(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    wanted = status.get("desiredNumberScheduled", 0)
    return status.get("updatedNumberScheduled", 0) >= wanted <= status.get("numberAvailable", 0)


def _stateful_set(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    partition = (spec.get("updateStrategy", {}).get("rollingUpdate") or {}).get("partition", 0)
    if partition:
        raise OtherwiseError
    return status.get("readyReplicas", 0) >= spec["replicas"] and status.get("updateRevision") == status.get("currentRevision")


_ROLLED = {"Deployment": _deployment, "DaemonSet": _daemon_set, "StatefulSet": _stateful_set}
# fmt: off
_DONE: dict[str, Callable[[_Api, Words, str | None, bool], str]] = {
    "get": _get, "create": _make, "apply": _make, "delete": _delete, "patch": _patch, "cordon": _cordon, "uncordon": _cordon, "wait": _wait,
    "rollout status": _rolled_out,
}
# fmt: on


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
