"""Writing through the API: what is sent, and what each refusal is told as. Loopback with real TLS and a real SSH transport."""

from __future__ import annotations

import base64
import datetime
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from roles.engine.api import Api, ApiError, Conflict, Forbidden, KubectlApi, NotFound, find_object, list_objects
from roles.engine.api.client import tls_way_out
from roles.engine.api.errors import TLS, Expired, ForwardingForbidden, Invalid, Owner, Timeout, Unreachable, Unusable, owners
from roles.engine.api.speakers import RbacRefusal, rbac_refusal
from roles.engine.tunnels import Tunnel
from tests.unit.api.world import ApiServer, Authority, SshServer, certificate_user, kubeconfig, through

CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses/high"
MANIFEST = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}

# Statuses as kube-apiserver 1.36 gave them.
FORBIDDEN = {
    "kind": "Status",
    "message": 'priorityclasses.scheduling.k8s.io "high" is forbidden: User "limited" cannot patch resource "priorityclasses" '
    'in API group "scheduling.k8s.io" at the cluster scope',
    "reason": "Forbidden",
    "code": 403,
}
NAMESPACED = (
    'deployments.apps "web" is forbidden: User "limited" cannot patch resource "deployments" in API group "apps" in the namespace "shop"'
)
CONFLICT = {
    "kind": "Status",
    "message": 'Apply failed with 1 conflict: conflict with "kubectl-edit" using scheduling.k8s.io/v1: .description',
    "reason": "Conflict",
    "details": {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "kubectl-edit" using scheduling.k8s.io/v1',
                "field": ".description",
            }
        ]
    },
    "code": 409,
}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("force", [True, False])
def test_an_apply_says_who_sets_the_fields(api: Api, server: ApiServer, dry_run: bool, force: bool) -> None:
    server.answer = lambda path, who: (201, b'{"kind": "PriorityClass"}')
    assert api.apply(CLASS, MANIFEST, force=force, dry_run=dry_run) == {"kind": "PriorityClass"}
    ((verb, path, content, body),) = server.sent
    assert (verb, urlsplit(path).path, content) == ("PATCH", CLASS, "application/apply-patch+yaml")
    asked = {"fieldManager": ["daytwo"], "fieldValidation": ["Strict"], "force": [str(force).lower()]}
    assert parse_qs(urlsplit(path).query) == (asked | {"dryRun": ["All"]} if dry_run else asked)
    assert json.loads(body) == MANIFEST


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_deletion_is_of_that_very_object(api: Api, server: ApiServer, dry_run: bool) -> None:
    api.delete(CLASS, "u-1", version="7", dry_run=dry_run)
    ((verb, path, _, body),) = server.sent
    assert (verb, path) == ("DELETE", CLASS)
    options = json.loads(body)
    assert options["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}
    assert options.get("dryRun") == (["All"] if dry_run else None)


def test_what_rbac_refuses_is_told_in_its_parts(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (403, json.dumps(FORBIDDEN).encode())
    with pytest.raises(Forbidden) as caught:
        api.apply(CLASS, MANIFEST)
    assert caught.value.refusal == RbacRefusal("limited", "patch", "priorityclasses.scheduling.k8s.io", "at the cluster scope")
    text = str(caught.value)
    assert text.startswith(f"cp1: PATCH {CLASS}: ")
    assert "'limited' may not patch priorityclasses.scheduling.k8s.io at the cluster scope" in text
    assert "grant 'limited' the verb patch on priorityclasses.scheduling.k8s.io" in text


def test_rbac_in_a_namespace_and_what_is_no_rbac() -> None:
    assert rbac_refusal(NAMESPACED) == RbacRefusal("limited", "patch", "deployments.apps", 'in the namespace "shop"')
    core = 'pods is forbidden: User "system:serviceaccount:a:b" cannot list resource "pods" in API group "" at the cluster scope'
    assert rbac_refusal(core) == RbacRefusal("system:serviceaccount:a:b", "list", "pods", "at the cluster scope")
    assert rbac_refusal('priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked as default.') is None


def test_the_owner_of_a_field_is_named(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (409, json.dumps(CONFLICT).encode())
    with pytest.raises(Conflict, match=r"\.description is owned by the field manager 'kubectl-edit'; .*force=true") as caught:
        api.apply(CLASS, MANIFEST)
    assert caught.value.owners == (Owner("kubectl-edit", ".description"),)


def test_a_conflict_of_versions_has_no_owners(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (409, b'{"message": "the object has been modified", "reason": "Conflict"}')
    with pytest.raises(Conflict, match="changed or replaced since it was read") as caught:
        api.delete(CLASS, "u-1")
    assert caught.value.owners == () == owners(b"no JSON")
    assert str(caught.value).startswith(f"cp1: DELETE {CLASS}: ")


@pytest.mark.parametrize("status", [400, 422])
def test_an_invalid_object(api: Api, server: ApiServer, status: int) -> None:
    server.answer = lambda path, who: (status, b'{"message": "unknown field \\"vaule\\""}')
    with pytest.raises(Invalid, match="unknown field"):
        api.apply(CLASS, MANIFEST)


def test_an_apply_is_tried_again_and_a_deletion_is_not(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (503, b"starting") if len(server.sent) < 2 else (200, b"{}")
    assert api.apply(CLASS, MANIFEST, wait=20) == {}
    assert len(server.sent) == 2
    server.answer = lambda path, who: (503, b"starting")
    with pytest.raises(Unreachable, match="DELETE"):
        api.delete(CLASS, "u-1")
    assert len(server.sent) == 3


def item(number: int) -> dict[str, Any]:
    return {"metadata": {"name": str(number)}}


def test_a_list_comes_in_pages(api: Api, server: ApiServer) -> None:
    def answer(path: str, who: str | None) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(path).query)
        assert query["limit"] == ["2"] and query["fieldSelector"] == ["spec.nodeName=w1"]
        first = int(query.get("continue", ["0"])[0])
        more = {"continue": str(first + 2)} if first < 4 else {}
        return 200, json.dumps({"metadata": more, "items": [item(n) for n in range(first, min(first + 2, 5))]}).encode()

    server.answer = answer
    assert list_objects(api, "/api/v1/pods", fields="spec.nodeName=w1", page=2) == [item(n) for n in range(5)]


def test_a_list_that_was_forgotten_is_asked_for_anew_as_a_whole(api: Api, server: ApiServer) -> None:
    asked: list[dict[str, list[str]]] = []

    def answer(path: str, who: str | None) -> tuple[int, bytes]:
        asked.append(parse_qs(urlsplit(path).query))
        if "continue" in asked[-1]:
            return 410, b'{"reason": "Expired", "message": "The provided continue parameter is too old"}'
        if asked[-1]["limit"] == ["0"]:
            return 200, json.dumps({"metadata": {}, "items": [item(1), item(2)]}).encode()
        return 200, json.dumps({"metadata": {"continue": "x"}, "items": [item(1)]}).encode()

    server.answer = answer
    assert list_objects(api, "/api/v1/pods", page=1) == [item(1), item(2)]
    assert len(asked) == 3
    server.answer = lambda path, who: (410, b"")
    with pytest.raises(Expired):
        list_objects(api, "/api/v1/pods")


def test_an_object_that_is_not_there(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (404, b'{"message": "not found"}')
    assert find_object(api, CLASS) is None
    server.answer = lambda path, who: (200, b"{}")
    assert find_object(api, CLASS) == {}


@pytest.mark.parametrize(
    ("message", "way_out"),
    [
        ("certificate has expired", "renew the certificate"),
        ("certificate is not yet valid", "check the clocks"),
        ("unable to get local issuer certificate", "another CA signed it"),
        ("self-signed certificate in certificate chain", "another CA signed it"),
        ("Hostname mismatch, certificate is not valid for 'nope'.", "serving certificate with it"),
        # Go's words, through kubectl.
        (
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time is after",
            "renew the certificate",
        ),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "another CA signed it"),
        ("tls: failed to verify certificate: x509: certificate is valid for cp1, not nope", "serving certificate with it"),
    ],
)
def test_each_bad_certificate_has_its_way_out(message: str, way_out: str) -> None:
    assert way_out in str(tls_way_out(message))


def test_an_expired_serving_certificate(ssh: SshServer, tmp_path: Path) -> None:
    authority = Authority("cluster")
    config = kubeconfig(authority, certificate_user(authority))
    authority.valid = datetime.timedelta(hours=-1)
    server = ApiServer(authority, tmp_path)
    try:
        with pytest.raises(TLS, match=r"certificate has expired\); .*kubeadm certs renew apiserver"):
            through(ssh, server.port, config).apply(CLASS, MANIFEST, wait=5)
    finally:
        server.close()
    assert not server.sent


class Node:
    """Runs what KubectlApi sends as the node's shell would, with words for kubectl's and curl's answers."""

    def __init__(self, ok: bool, out: str, err: str = "") -> None:
        self.answer = (ok, out, err)
        self.scripts: list[str] = []

    def run(self, script: str) -> tuple[bool, str, str]:
        self.scripts.append(script)
        return self.answer


def test_on_the_node_a_write_goes_through_kubectl_proxy() -> None:
    node = Node(True, '{"kind": "PriorityClass"}\n201')
    api = KubectlApi(node.run, ("127.0.0.1", 6443), "cp1")
    assert api.apply(CLASS, MANIFEST) == {"kind": "PriorityClass"}
    (script,) = node.scripts
    assert "kubectl --kubeconfig=/etc/kubernetes/admin.conf --server=https://127.0.0.1:6443 --tls-server-name=kubernetes proxy" in script
    assert "--request PATCH" in script and "application/apply-patch+yaml" in script
    found = re.search(r"printf %s (\S+) \|", script)
    assert found and json.loads(base64.b64decode(found[1])) == MANIFEST


@pytest.mark.parametrize(
    ("ok", "out", "err", "error"),
    [
        (True, json.dumps(FORBIDDEN) + "\n403", "", Forbidden),
        (True, json.dumps(CONFLICT) + "\n409", "", Conflict),
        (True, '{"message": "value may not be changed"}\n422', "", Invalid),
        (True, '{"message": "not found"}\n404', "", NotFound),
        (True, '{"message": "failed to create typed patch object (/high): .vaule: field not declared in schema"}\n500', "", Invalid),
        (True, '{"message": "etcd is away"}\n500', "", Unreachable),
        # What the proxy itself says (kubectl 1.36) where it does not get through.
        (True, "dial tcp 127.0.0.1:6443: connect: connection refused\n502", "", Unreachable),
        (True, "tls: failed to verify certificate: x509: certificate signed by unknown authority\n502", "", TLS),
        (False, "", "curl: (28) Operation timed out after 1000 milliseconds with 0 bytes received", Timeout),
        (False, "", "sh: kubectl: not found", ForwardingForbidden),
        (False, "", "sh: curl: not found", ForwardingForbidden),
        (False, "", "error: stat /etc/kubernetes/admin.conf: no such file or directory", Unusable),
    ],
)
def test_what_goes_wrong_on_the_node(ok: bool, out: str, err: str, error: type[ApiError]) -> None:
    api = KubectlApi(Node(ok, out, err).run, ("127.0.0.1", 6443), "cp1")
    with pytest.raises(error) as caught:
        api.apply(CLASS, MANIFEST)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"cp1: PATCH {CLASS}: ")


def test_the_tunnel_still_posts_where_no_verb_is_given(ssh: SshServer, tmp_path: Path) -> None:
    server = ApiServer(None, tmp_path)
    try:
        Tunnel(ssh.transport, ("127.0.0.1", server.port), "cp1", context=None, name="x").request("/a", body=b"{}")
        assert server.posted == [("/a", b"{}")] and server.headers["Content-Type"] == "application/json"
    finally:
        server.close()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_patch_of_a_subresource(api: Api, server: ApiServer, dry_run: bool) -> None:
    server.answer = lambda path, who: (200, b'{"kind": "Pod"}')
    path = "/api/v1/namespaces/shop/pods/web-0/resize"
    changes = {"metadata": {"uid": "u-1"}, "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}}
    assert api.patch(path, changes, dry_run=dry_run) == {"kind": "Pod"}
    ((verb, sent, content, body),) = server.sent
    assert (verb, urlsplit(sent).path, content) == ("PATCH", path, "application/strategic-merge-patch+json")
    asked = {"fieldManager": ["daytwo"], "fieldValidation": ["Strict"]}
    assert parse_qs(urlsplit(sent).query) == (asked | {"dryRun": ["All"]} if dry_run else asked)
    assert json.loads(body) == changes
