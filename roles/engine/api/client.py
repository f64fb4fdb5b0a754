"""One node's API as daytwo uses it, by whatever way its requests are sent (tunnel.py, kubectl.py).

Written by hand, without the `kubernetes` package. Its models cost half a second of CPU at each start, and a list takes 15 times the CPU
of plain JSON. It writes keys and discovery to files. With it, a deadline for a whole try, kubectl as the fallback, and errors with a way
out would have to be written by hand too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from roles.engine.api import errors
from roles.engine.bounds import read_json
from roles.engine.kube import preconditions
from roles.engine.kube.field_managers import FIELD_MANAGER
from roles.engine.timeouts import patient

#: Runs one command line in the node's shell, as root: (exit status was 0, stdout, stderr).
RunCommand = Callable[[str], tuple[bool, str, str]]

#: In every kubeadm serving certificate, whatever the node's names and addresses (kubeadm: pkiutil.GetAPIServerAltNames).
TLS_SERVER_NAME = "kubernetes"

TIMEOUT = 15.0
#: Pause between two tries while waiting for an API that is unavailable.
PAUSE = 0.5
#: An API server that just came back answers 403 until it has read its RBAC rules.
SETTLE = 10.0

#: The way out if a server does not prove to be this cluster's, and nothing more is known.
CA_WAY_OUT = "use this cluster's kubeconfig"

#: HTTP statuses of a completed write, or of an accepted deletion.
DONE = frozenset({200, 201, 202})


class Api:
    """One node's API. `path` is absolute, with its query; all times are seconds on the monotonic clock. What differs between the ways to
    it is `_get` and `_send`.

    `timeout` bounds one try as a whole. With `wait`, errors that pass by themselves (nothing listens, no answer in time,
    HTTP 5xx) are retried for that long in total; then the last of them is raised.
    """

    def __init__(self, host: str) -> None:
        self._host = host

    @property
    def host(self) -> str:
        """The node whose API this is."""
        return self._host

    def get_raw(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> bytes:
        """The body of a GET. Raises an ApiError."""
        return self._tried("GET", path, lambda limit: self._get(path, limit), timeout, wait)

    def apply(
        self,
        path: str,
        manifest: Mapping[str, Any],
        timeout: float = TIMEOUT,
        *,
        force: bool = False,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> dict[str, Any]:
        """Server-side apply as FIELD_MANAGER; returns the resulting object (with `dry_run`, the object that would result).

        `path` is the object's own; a metadata.uid or metadata.resourceVersion in the manifest is a precondition. Unknown fields
        are refused. With `force`, fields of other managers are taken over; else Conflict names them. Raises an ApiError.
        """
        # JSON is YAML, and YAML's is the only media type of server-side apply that all versions accept.
        return self._patched(path, "application/apply-patch+yaml", manifest, {"force": str(force).lower()}, timeout, dry_run, wait)

    def patch(
        self, path: str, changes: Mapping[str, Any], timeout: float = TIMEOUT, *, dry_run: bool = False, wait: float = 0.0
    ) -> dict[str, Any]:
        """Strategic merge patch of an object, or of a subresource of it, as FIELD_MANAGER; returns the resulting object (with `dry_run`,
        the object that would result).

        A metadata.uid or metadata.resourceVersion in `changes` is a precondition: Conflict if the object's differs by now. Unknown fields
        are refused. Raises an ApiError.
        """
        return self._patched(path, "application/strategic-merge-patch+json", changes, {}, timeout, dry_run, wait)

    def _patched(
        self, path: str, content: str, changes: Mapping[str, Any], more: Mapping[str, str], timeout: float, dry_run: bool, wait: float
    ) -> dict[str, Any]:
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", **more, **({"dryRun": "All"} if dry_run else {})}
        whole = f"{path}?{urlencode(query)}"
        # The same patch twice has the same result, so it can be retried.
        return self._object("PATCH", whole, self._sent("PATCH", whole, changes, timeout, wait, content))

    def _sent(
        self, verb: str, path: str, body: Mapping[str, Any], timeout: float, wait: float = 0.0, content: str = "application/json"
    ) -> bytes:
        data = json.dumps(body).encode()
        return self._tried(verb, path, lambda limit: self._send(verb, path, content, data, limit), timeout, wait)

    def create(self, path: str, manifest: Mapping[str, Any], timeout: float = TIMEOUT, *, dry_run: bool = False) -> dict[str, Any]:
        """POST an object to a collection or a subresource; returns the answer (with `dry_run`, the one that would come). Never retried by
        itself. Raises an ApiError; for an eviction also EvictionRefused."""
        whole = f"{path}?{urlencode({'fieldManager': FIELD_MANAGER, **({'dryRun': 'All'} if dry_run else {})})}"
        return self._object("POST", whole, self._sent("POST", whole, manifest, timeout))

    def delete(
        self, path: str, uid: str, timeout: float = TIMEOUT, *, version: str = "", dry_run: bool = False, grace: int | None = None
    ) -> None:
        """Delete exactly the object with this UID (and resourceVersion `version`, if given): Conflict if it is another object by now.
        `grace`: seconds that a pod has to end, if not its own; one that is ending already can only get fewer (apiserver,
        registry/rest/delete.go: BeforeDelete). Raises an ApiError."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions(uid, version)}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if dry_run:
            options["dryRun"] = ["All"]
        self._sent("DELETE", path, options, timeout)

    def _tried(self, verb: str, path: str, send: Callable[[float], bytes], timeout: float, wait: float) -> bytes:
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise ValueError(f"not an absolute, percent-encoded path: {path!r}")
        timeout, wait = patient(timeout), patient(wait)
        begun = time.monotonic()
        until = begun + wait
        settled: float | None = None
        while True:
            now = time.monotonic()
            # While waiting, no try may outlast the deadline; but a try always gets a moment.
            limit = min(timeout, max(until - now, PAUSE)) if wait else timeout
            try:
                return send(limit)
            except errors.ApiError as error:
                if verb != "GET":
                    error.verb, error.path = verb, path.partition("?")[0]
                now = time.monotonic()
                if error.passing:
                    settled = now + patient(SETTLE)
                elif not isinstance(error, errors.Forbidden) or settled is None or now > settled:
                    raise
                if now + PAUSE > until:
                    if wait:
                        error.rule = f"{error.rule}, tried for {now - begun:.0f} s"
                    raise
            time.sleep(PAUSE)

    def get_json(self, path: str, timeout: float = TIMEOUT, *, wait: float = 0.0) -> dict[str, Any]:
        """The body of a GET, a JSON object. Raises an ApiError."""
        return self._object("GET", path, self.get_raw(path, timeout, wait=wait))

    def _object(self, verb: str, path: str, body: bytes) -> dict[str, Any]:
        try:
            found = read_json(body)
        except ValueError as error:
            raise self._unusable(verb, path, f"the answer is not JSON ({error})", "is this the address of a Kubernetes API?") from None
        if not isinstance(found, dict):
            raise self._unusable(verb, path, "the answer is JSON, but not an object", "use the path of an object")
        return found

    def _unusable(self, verb: str, path: str, rule: str, way_out: str) -> errors.Unusable:
        error = errors.Unusable(self._host, path, rule, way_out)
        error.verb = verb
        return error

    def _get(self, path: str, timeout: float) -> bytes:
        raise NotImplementedError

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        raise NotImplementedError


def tls_way_out(text: str) -> str | None:
    """The way out for a refused certificate, by the words of OpenSSL or of Go's crypto/x509; None for other reasons."""
    lower = text.lower()
    if "expired" in lower or "not yet valid" in lower:
        return (
            "check the clocks; then renew the certificate there (`kubeadm certs renew apiserver`, or the tool that created it) and restart "
            "the kube-apiserver"
        )
    if "unknown authority" in lower or "issuer certificate" in lower or "self-signed" in lower or "self signed" in lower:
        return "another CA signed it: use this cluster's kubeconfig, whose certificate-authority-data is the CA that signs its API server"
    if "hostname mismatch" in lower or "certificate is valid for" in lower or "ip address mismatch" in lower:
        return (
            f"daytwo requires the name {TLS_SERVER_NAME!r}, which every certificate of kubeadm has: create the kube-apiserver's serving "
            "certificate with it (kubeadm: delete apiserver.crt and apiserver.key, `kubeadm init phase certs apiserver`, restart it)"
        )
    return None
