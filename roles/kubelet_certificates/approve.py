"""Approves the request of one node's kubelet, and proves by a handshake that this very node got the certificate."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from roles.engine.api import Api, Conflict
from roles.engine.certificates import CertificateError, parse_certificates
from roles.engine.certificates.approval import ExpectedNames, is_pending, objections, request_of, requester
from roles.engine.harmless import one_line
from roles.engine.objects import NotDone
from roles.engine.proof import Cluster
from roles.engine.proof.presented import Presented
from roles.engine.timeouts import LOOK_AGAIN, Deadline
from roles.kubelet_certificates.facts import REQUESTS, read_requests
from roles.kubelet_certificates.plan import listed, name_of

#: Seconds. A kubelet asks as soon as its node has addresses; kube-controller-manager signs at once; the kubelet then watches.
REQUEST_SECONDS = 60.0
SIGNED_SECONDS = 30.0
SERVED_SECONDS = 30.0


@dataclass(frozen=True)
class Node:
    """What an approval needs to know of a node, asked again each time: `expected`, the names that are its own now, and `presented`, what
    its kubelet serves now."""

    name: str
    expected: Callable[[], ExpectedNames]
    presented: Callable[[], Presented]


def new_request(cluster: Cluster, node: Node, known: frozenset[str]) -> Mapping[str, Any] | None:
    """The request that a kubelet has made since the UIDs of all requests were `known`; None if it serves a valid certificate that it had
    already, and makes none. Raises NotDone if there is none, or one that must not be approved, or more than one: a restarted kubelet makes
    one. ApiFailure."""
    deadline = Deadline(REQUEST_SECONDS)
    while True:
        found = [item for item in read_requests(cluster) if requester(item) == node.name and item["metadata"].get("uid") not in known]
        expected = node.expected()
        # Another approver of the cluster may have been faster: its content counts all the same.
        judged = [(item, objections({**item, "status": {}}, node.name, expected)) for item in found]
        if bad := [f"{name_of(item)}: {'; '.join(why)}" for item, why in judged if why]:
            raise NotDone(f"a request in the name of {node.name} is NOT APPROVED: {listed(bad)}; look: kubectl get csr -o yaml")
        if len(found) > 1:
            names = ", ".join(name_of(item) for item in found[:5])
            raise NotDone(
                f"{len(found)} requests in the name of {node.name} since its kubelet was restarted ({names}), and a kubelet makes one:"
                " something else uses the node's credential; none is approved"
            )
        if found:
            return found[0]
        if valid(node.presented(), expected):
            return None
        if deadline.over:
            raise NotDone(f"the kubelet of {node.name} has not asked for a certificate within {deadline.seconds:g} s; see its journal")
        deadline.pause(LOOK_AGAIN)


def approve(cluster: Cluster, node: Node, item: Mapping[str, Any], run: str) -> str:
    """Approve this request, unless it must not be; wait for the certificate, and for the node to serve it. Returns the proof. Raises
    NotDone, ApiFailure."""
    name, uid = str(item["metadata"]["name"]), str(item["metadata"]["uid"])
    path = f"{REQUESTS}/{quote(name, safe='')}"
    found = cluster.object(path)
    if found is None or found["metadata"].get("uid") != uid:
        raise NotDone(f"the request {name_of(item)} was deleted; run this again")
    if is_pending(found):
        if why := objections(found, node.name, node.expected()):
            raise NotDone(f"the request {name_of(item)} in the name of {node.name} is NOT APPROVED: {'; '.join(why)}")
        try:
            cluster.query(lambda api: _approve(api, path, found, node.name, run))
        except Conflict:
            # An answer may have been lost: then the request is as this run has left it.
            now = cluster.object(path) or {}
            if (now.get("metadata") or {}).get("uid") != uid or is_pending(now):
                raise
    try:
        key = request_of(found).public_key
    except CertificateError as error:
        raise NotDone(f"the request {name_of(item)}: {error}") from None
    try:
        _signed(cluster, path, uid, key)
        return f"{name_of(item)} approved; {proven(node, key)}"
    except NotDone as error:
        raise NotDone(f"{name_of(item)} is approved, which cannot be undone; {error}") from None


def _approve(api: Api, path: str, found: Mapping[str, Any], node: str, run: str) -> None:
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "MatchesNode",
        "message": f"daytwo run {run}: user, usages, subject and names are those of node {node}, as seen over SSH",
    }
    meta = {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]}
    api.patch(f"{path}/approval", {"metadata": meta, "status": {"conditions": [condition]}})


def _signed(cluster: Cluster, path: str, uid: str, key: bytes) -> None:
    """Wait until it has a certificate of this key. Raises NotDone, ApiFailure."""
    deadline = Deadline(SIGNED_SECONDS)
    while True:
        found = cluster.object(path) or {}
        if (found.get("metadata") or {}).get("uid") != uid:
            raise NotDone("the request was deleted after it was approved; run this again")
        status = found.get("status") or {}
        failed = [one for one in status.get("conditions") or () if one.get("type") in ("Denied", "Failed")]
        if failed:
            raise NotDone(f"the request is {failed[0].get('type')}: {one_line(str(failed[0].get('message')))}")
        if text := status.get("certificate"):
            try:
                certificates = parse_certificates(base64.b64decode(text))
            except (CertificateError, ValueError) as error:
                raise NotDone(f"the certificate of the request cannot be read: {error}") from None
            if not certificates or certificates[0].public_key != key:
                raise NotDone("the certificate of the request is not of the request's own key")
            return
        if deadline.over:
            raise NotDone(f"it is approved, but was not signed within {deadline.seconds:g} s; check kube-controller-manager")
        deadline.pause(LOOK_AGAIN)


def valid(shown: Presented, expected: ExpectedNames) -> bool:
    """The cluster's CA proves the certificate, and it is for exactly the node's names."""
    certificate, names = shown.certificate, expected.names
    own = {*names.dns, *names.ips}
    return certificate is not None and shown.verified and {*certificate.names.dns, *certificate.names.ips} == own


def proven(node: Node, key: bytes | None) -> str:
    """Wait until the node serves a certificate (of this key) that the cluster's CA proves and that has exactly its names. Raises NotDone,
    ApiFailure."""
    deadline = Deadline(SERVED_SECONDS)
    while True:
        shown = node.presented()
        certificate = shown.certificate
        why = f"{shown.where} serves {'no certificate' if certificate is None else 'one that is not valid'}: {shown.problem}"
        if certificate is not None and shown.verified:
            if key is None or certificate.public_key == key:
                expected = node.expected()
                if valid(shown, expected):
                    until = f"{certificate.not_after:%Y-%m-%d}"
                    return f"TLS handshake with {shown.where} verified by the cluster's CA, until {until}"
                why = f"the certificate at {shown.where} is for {certificate.names}, and the node has {expected.names}"
            else:
                why = (
                    f"{shown.where} serves a certificate of another key than that of the approved request: something else may have the"
                    " node's credential. If so, remove the node and join it again"
                )
        deadline.pause(LOOK_AGAIN, late=NotDone(f"not proven within {deadline.seconds:g} s: {why}"))
