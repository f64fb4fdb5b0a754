"""Who gave an answer: by the outermost form of its words, as Kubernetes 1.36 writes them, and never by its status code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roles.engine.api import ApiError, Denied, Forbidden, KubectlApi, NotFound, Speaker
from roles.engine.api.errors import EvictionRefused, Invalid, KubeletDistrusted, Unauthorized, Unreachable, by_status
from roles.engine.api.speakers import FORMS, spoken_by

PODS, EVICTION = "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/pods/web-1/eviction"
KUBELET = "/api/v1/nodes/w1/proxy/configz"
METRICS = "/apis/metrics.k8s.io/v1beta1/nodes"
HOOK = 'admission webhook "guard.example" denied the request'
RBAC = 'User "ops" cannot create resource "pods/eviction" in API group "" in the namespace "shop"'
ADMINS = "cluster admin"


def status(message: str, code: int, **more: object) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, **more}).encode()


def said(path: str, message: str, code: int, **more: object) -> ApiError:
    return by_status("cp1", path, code, status(message, code, **more))


def forbidden(words: str) -> str:
    return f'pods "web-1" is forbidden: {words}'


#: Words, the code with which they come, the path, who spoke, the error, its name in the message.
SPOKEN: tuple[tuple[str, int, str, Speaker, type[ApiError], str], ...] = (
    *((f"{HOOK}: not yet", code, EVICTION, Speaker.WEBHOOK, Denied, "guard.example") for code in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)),
    (f"{HOOK} without explanation", 400, EVICTION, Speaker.WEBHOOK, Denied, "guard.example"),
    ('admission webhook "guard.example" does not support dry run', 400, EVICTION, Speaker.WEBHOOK, Denied, "sideEffects"),
    (
        'Internal error occurred: failed calling webhook "guard.example": failed to call webhook: Post "https://guard.ops.svc:443/": dial tcp '
        "10.96.0.9:443: connect: connection refused", 500, PODS, Speaker.WEBHOOK, Denied, "guard.example",
    ),
    ('Internal error occurred: failed calling webhook "guard.example"; no further details available', 500, PODS, Speaker.WEBHOOK, Denied, "guard"),
    (
        'Internal error occurred: admission webhook "guard.example" attempted to modify the object, which is not supported for this operation',
        500, PODS, Speaker.WEBHOOK, Denied, "guard.example",
    ),
    *(
        (forbidden("ValidatingAdmissionPolicy 'no-night' with binding 'all' denied request: not at night"), code, EVICTION, Speaker.POLICY, Denied, "no-night")
        for code in (401, 403, 413, 422)
    ),
    ("policy 'adds' with binding 'all' denied request: no such field", 403, PODS, Speaker.POLICY, Denied, "adds"),
    (forbidden("exceeded quota: few, requested: pods=1, used: pods=5, limited: pods=5"), 403, PODS, Speaker.QUOTA, Denied, "ResourceQuota few"),
    (forbidden("failed quota: few: must specify limits.cpu for: c"), 403, PODS, Speaker.QUOTA, Denied, "ResourceQuota few"),
    (forbidden("status unknown for quota: few, resources: pods"), 403, PODS, Speaker.QUOTA, Denied, "ResourceQuota few"),
    (forbidden("insufficient quota to consume: pods"), 403, PODS, Speaker.QUOTA, Denied, "ResourceQuota"),
    (
        'Operation cannot be fulfilled on resourcequotas "few": the object has been modified; please apply your changes to the latest version '
        "and try again", 409, PODS, Speaker.QUOTA, Denied, "few",
    ),
    (
        forbidden('violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)'), 403, PODS, Speaker.POD_SECURITY, Denied,
        "PodSecurity restricted:latest",
    ),
    (forbidden("minimum cpu usage per Container is 50m, but request is 5m"), 403, PODS, Speaker.LIMIT_RANGE, Denied, "LimitRange"),
    (
        forbidden("[minimum cpu usage per Container is 50m, but request is 5m, minimum memory usage per Container is 64Mi, but request is 8Mi]"),
        403, PODS, Speaker.LIMIT_RANGE, Denied, "LimitRange",
    ),
    (
        forbidden("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"), 403, PODS, Speaker.LIMIT_RANGE, Denied,
        "limitrange",
    ),
    (
        forbidden("unable to create new content in namespace shop because it is being terminated"), 403, EVICTION, Speaker.NAMESPACE, Denied,
        "shop",
    ),
    (
        'poddisruptionbudgets.policy "web" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller', 403,
        EVICTION, Speaker.BUDGET, EvictionRefused, "DisruptedPods",
    ),
    (
        forbidden('error looking up service account shop/default: serviceaccount "default" not found'), 403, PODS, Speaker.SERVICE_ACCOUNT,
        Denied, "shop/default",
    ),
    (forbidden("no PriorityClass with name high was found"), 403, PODS, Speaker.PRIORITY, Denied, "high"),
    (forbidden('node "w1" can only delete pods with spec.nodeName set to itself'), 403, PODS, Speaker.NODE_RESTRICTION, Denied, "NodeRestriction"),
    (
        forbidden("node didn't have enough allocatable resources: cpu, requested: 100000, allocatable: 2000"), 403, PODS, Speaker.POD_RESIZE,
        Denied, "a pod cannot request more than its node has",
    ),
    (
        'certificatesigningrequests.certificates.k8s.io "csr-1" is forbidden: user not permitted to approve requests with signerName '
        '"kubernetes.io/kubelet-serving"', 403, "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval", Speaker.RIGHTS,
        Denied, "Role",
    ),
    (
        'roles.rbac.authorization.k8s.io "a" is forbidden: user "ops" (groups=["system:authenticated"]) is attempting to grant RBAC permissions '
        'not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["get"]}', 403, PODS, Speaker.RIGHTS, Denied, "Role",
    ),
    (forbidden("pod rejected: RuntimeClass \"kata\" not found"), 403, PODS, Speaker.ADMISSION, Denied, "kata"),
    (forbidden("one or more images rejected by webhook backend"), 403, PODS, Speaker.ADMISSION, Denied, "admission plugin"),
    (forbidden("not yet ready to handle request"), 403, PODS, Speaker.API_SERVER, Unreachable, "has just started"),
    (forbidden(RBAC), 403, EVICTION, Speaker.RBAC, Forbidden, ADMINS),
    ('forbidden: User "ops" cannot get path "/metrics"', 403, "/metrics", Speaker.RBAC, Forbidden, ADMINS),
    ("Unauthorized", 401, PODS, Speaker.AUTHENTICATION, Unauthorized, "check-expiration"),
    (forbidden(f"{RBAC}: requires one of [\"container.pods.evict\"] permission(s)."), 403, EVICTION, Speaker.RBAC, Forbidden, "another authorizer"),
    (forbidden(f"{RBAC}: RBAC: role.rbac.authorization.k8s.io \"x\" not found"), 403, EVICTION, Speaker.RBAC, Forbidden, "Forbidden: RBAC: 'ops'"),
    (
        'Internal error occurred: admission plugin "ValidatingAdmissionWebhook" failed to complete validation in 13s', 500, PODS, Speaker.WEBHOOK,
        Denied, "timeoutSeconds",
    ),
    ("Internal error occurred: resource quota evaluation timed out", 500, PODS, Speaker.QUOTA, Denied, "ResourceQuota"),
    ("etcdserver: request is too large", 500, PODS, Speaker.STORAGE, Denied, "too large for etcd"),
    ("rpc error: code = ResourceExhausted desc = trying to send message larger than max", 500, PODS, Speaker.STORAGE, Denied, "give it less"),
    ("etcdserver: request timed out", 500, PODS, Speaker.STORAGE, Unreachable, "etcd"),
    ("etcdserver: mvcc: database space exceeded", 500, PODS, Speaker.STORAGE, Denied, "alarm disarm"),
    ("rpc error: code = Unavailable desc = keepalive ping failed", 500, PODS, Speaker.STORAGE, Unreachable, "etcd"),
    ("storage is (re)initializing", 429, PODS, Speaker.STORAGE, Unreachable, "etcd"),
    ("Timeout: request did not complete within requested timeout", 504, PODS, Speaker.API_SERVER, Unreachable, "the API server"),
    (
        "conversion webhook for example.com/v1, Kind=Thing failed: Post \"https://c.ops.svc:443/\": EOF", 500, "/apis/example.com/v2/things",
        Speaker.CONVERSION, Unreachable, "Kind=Thing",
    ),
    (
        "Internal error occurred: conversion webhook for example.com/v1, Kind=Thing returned 1 objects, expected 2", 500,
        "/apis/example.com/v2/things", Speaker.CONVERSION, Unreachable, "Kind=Thing",
    ),
    ('Pod "web-1" is invalid: spec.priority: Forbidden: may not be changed', 422, PODS, Speaker.API_SERVER, Invalid, "priority"),
    ('pods "web-1" not found', 404, EVICTION, Speaker.API_SERVER, NotFound, "web-1"),
    (
        'nodes "w1" is forbidden: User "ops" cannot get resource "nodes/proxy" in API group "" at the cluster scope', 403, KUBELET,
        Speaker.RBAC, Forbidden, "nodes/proxy",
    ),
    ("error trying to reach service: dial tcp 10.0.0.2:10250: connect: connection refused", 503, KUBELET, Speaker.KUBELET, Unreachable, "kubelet"),
    (
        "error trying to reach service: proxy error from 127.0.0.1:8131 while dialing 10.0.0.2:10250, code 503: 503 Service Unavailable", 503,
        KUBELET, Speaker.TUNNEL, Unreachable, "konnectivity",
    ),
    (
        "error trying to reach service: tls: failed to verify certificate: x509: cannot validate certificate for 10.0.0.2 because it doesn't contain any"
        " IP SANs", 503, KUBELET, Speaker.API_SERVER, KubeletDistrusted, "kubelet-certificate-authority",
    ),
    ("error trying to reach service: dial tcp 10.96.3.3:443: i/o timeout", 503, METRICS, Speaker.AGGREGATED, Unreachable, "apiservices"),
)  # fmt: skip

#: Answers that are no Status: the text, and the rest as above.
PLAIN: tuple[tuple[str, int, str, Speaker, type[ApiError], str], ...] = (
    ("Too many requests, please try again later.", 429, PODS, Speaker.API_SERVER, Unreachable, "Too many requests"),
    ("Too many requests, please try again later.", 429, KUBELET, Speaker.API_SERVER, Unreachable, "Too many requests"),
    ("service unavailable", 503, METRICS, Speaker.AGGREGATED, Unreachable, "metrics.k8s.io"),
    ("Unauthorized", 401, KUBELET, Speaker.KUBELET, Denied, "kubelet-client-certificate"),
    (
        "Forbidden (user=kube-apiserver-kubelet-client, verb=get, resource=nodes, subresource(s)=[proxy])", 403, KUBELET, Speaker.KUBELET,
        Denied, "kubelet-api-admin",
    ),
    ("404 page not found", 404, KUBELET, Speaker.KUBELET, NotFound, "404"),
    ("<html><body>503 Service Temporarily Unavailable</body></html>", 503, PODS, Speaker.OTHER, Unreachable, "no Kubernetes API"),
    ("<html>denied by policy</html>", 403, PODS, Speaker.OTHER, ApiError, "load balancer"),
    ("[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed", 500, "/readyz", Speaker.API_SERVER, Unreachable, "[-]etcd"),
    ("", 403, PODS, Speaker.API_SERVER, Forbidden, "does not say who"),
)  # fmt: skip


@pytest.mark.parametrize(("words", "code", "path", "speaker", "kind", "shown"), [*SPOKEN, *PLAIN])
def test_who_spoke(words: str, code: int, path: str, speaker: Speaker, kind: type[ApiError], shown: str) -> None:
    plain = (words, code, path, speaker, kind, shown) in PLAIN
    error = by_status("cp1", path, code, words.encode() if plain else status(words, code))
    assert error.speaker is speaker and isinstance(error, kind) and shown in str(error), repr(error)
    blamed = speaker in (Speaker.RBAC, Speaker.AUTHENTICATION)
    assert blamed == any(text in error.way_out for text in (ADMINS, "expired")), error


def test_every_form_and_speaker_has_an_example() -> None:
    assert {one for _, _, _, one, *_ in (*SPOKEN, *PLAIN)} == set(Speaker)
    used = [spoken_by(path, status(words, code)).form for words, code, path, *_ in SPOKEN]
    assert not [form for form in FORMS if form not in used]


def test_a_denial_is_final_and_a_webhook_that_does_not_answer_may_answer_later() -> None:
    assert not said(EVICTION, f"{HOOK}: not yet", 429).passing
    silent = 'Internal error occurred: failed calling webhook "guard.example": failed to call webhook: EOF'
    assert said(PODS, silent, 500).passing
    # A drain asks again itself, until its own time is over.
    assert not said(EVICTION, silent, 500).passing


@pytest.mark.parametrize(
    "words",
    [
        forbidden(RBAC),
        RBAC,
        "Too many requests, please try again later.",
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        "Unauthorized",
        'x"; use those of a cluster admin (admin.conf)',
        f"{forbidden('exceeded quota: few')}",
    ],
)
@pytest.mark.parametrize("code", [401, 403, 429, 500])
def test_a_webhook_cannot_pretend_to_be_another_speaker(words: str, code: int) -> None:
    """Whatever it writes, also into the causes and the reason, which are its own."""
    causes = [{"reason": reason, "message": words} for reason in ("DisruptionBudget", "NamespaceTerminating")]
    error = said(EVICTION, f"{HOOK}: {words}", code, reason="Unauthorized", details={"causes": causes})
    assert type(error) is Denied and error.speaker is Speaker.WEBHOOK and error.way_out == "ask its owner"
    assert error.cause.startswith('admission webhook guard.example denied the request: "') and error.cause.count('"') == 2


def test_a_kubelet_cannot_pretend_to_be_rbac() -> None:
    for words in (forbidden(RBAC), f"{HOOK}: not yet", "etcdserver: request timed out"):
        assert by_status("cp1", KUBELET, 500, words.encode()).speaker is Speaker.KUBELET


def test_foreign_words_are_bounded_and_move_no_cursor() -> None:
    error = said(EVICTION, f"{HOOK}: \x1b[2J\n{'long ' * 4000}", 403)
    assert "\x1b" not in str(error) and "\n" not in str(error) and len(str(error)) < 700


@pytest.mark.parametrize(
    ("printed", "speaker", "kind"),
    [
        ("Error from server (Forbidden): " + forbidden("exceeded quota: few, requested: pods=1"), Speaker.QUOTA, Denied),
        ('Error from server (Forbidden): nodes "w1" is forbidden: User "ops" cannot list resource "nodes" in API group "" at the cluster scope',
         Speaker.RBAC, Forbidden),
        ("Warning: Error from server (Unauthorized): x\nError from server (TooManyRequests): the server has received too many requests and has "
         "asked us to try again later", Speaker.API_SERVER, Unreachable),
        ('Error from server (InternalError): an error on the server ("etcdserver: leader changed") has prevented the request from succeeding',
         Speaker.STORAGE, Unreachable),
        ("Error from server: etcdserver: request timed out", Speaker.STORAGE, Unreachable),
        ("Error from server (NotFound): the server could not find the requested resource", Speaker.API_SERVER, NotFound),
        ("Error from server (Timeout): the server was unable to return a response in the time allotted", Speaker.API_SERVER, Unreachable),
    ],
)  # fmt: skip
def test_kubectl_on_the_node_prints_whose_answer_it_is(printed: str, speaker: Speaker, kind: type[ApiError]) -> None:
    api = KubectlApi(lambda command: (False, "", printed), ("127.0.0.1", 6443), "cp1")
    with pytest.raises(kind) as caught:
        api.get_raw(PODS)
    assert caught.value.speaker is speaker


def test_the_documentation_has_a_row_for_each_speaker() -> None:
    text = (Path(__file__).parents[3] / "docs/answers.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    missing = [one.value for one in Speaker if not any(row.startswith(f"| {one.value} |") for row in rows)]
    assert not missing
