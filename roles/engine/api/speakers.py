"""Who gave an answer of the API: the server itself, or one of those that it asks before it answers, or that answer behind it.

The status code does not say it: a webhook may deny with 401, 403, 404, 409, 429 or 500. The outermost form of the message does, since each
speaker that a tenant can write for has its words put behind a prefix of the API server's own (`admission webhook "NAME" denied the
request: ...`): only a match from the beginning counts. Pure. Forms as in Kubernetes 1.36; docs/answers.md has a row for each speaker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from roles.engine.bounds import read_json


class Speaker(Enum):
    """Who spoke, as in a sentence."""

    API_SERVER = "the API server"
    STORAGE = "the API server's storage, etcd"
    AUTHENTICATION = "the API server's authentication"
    RBAC = "RBAC"
    RIGHTS = "an admission plugin that asks RBAC"
    BUDGET = "a PodDisruptionBudget"
    WEBHOOK = "admission webhook"
    POLICY = "admission policy"
    LIMIT_RANGE = "LimitRange"
    QUOTA = "ResourceQuota"
    POD_SECURITY = "PodSecurity"
    NAMESPACE = "a namespace that is being deleted"
    SERVICE_ACCOUNT = "the ServiceAccount admission"
    PRIORITY = "the Priority admission"
    NODE_RESTRICTION = "NodeRestriction"
    POD_RESIZE = "PodResizeValidator"
    ADMISSION = "an admission plugin"
    CONVERSION = "the conversion webhook"
    AGGREGATED = "the server of the aggregated API"
    KUBELET = "the kubelet behind the API server"
    TUNNEL = "the tunnel from the API server to the nodes"
    OTHER = "something that is no Kubernetes API server"


#: What encloses the words of a speaker: nothing, `RESOURCE "NAME" is forbidden: ` (api/errors: NewForbidden), `Internal error occurred: `
#: (NewInternalError), `error trying to reach service: ` (util/proxy/transport.go).
Frame = Literal["", "forbidden", "internal", "proxy"]

_FRAMES: tuple[tuple[Frame, re.Pattern[str]], ...] = (
    ("forbidden", re.compile(r'(?:\S+ (?:"(?:[^"\\]|\\.)*" )?is )?forbidden: ')),
    ("internal", re.compile(r"Internal error occurred: ")),
    ("proxy", re.compile(r"error trying to reach service: ")),
)


@dataclass(frozen=True)
class Form:
    """One form of words. `pattern` must match where the frame ends; its groups: `name` of the speaker, `words` of its own. `passing`: the
    same request may succeed a moment later. `does`: what it did, for a sentence; `way_out`: what an operator can do, with `{name}`."""

    speaker: Speaker
    frame: Frame
    pattern: re.Pattern[str]
    way_out: str
    passing: bool = False
    does: str = "denied the request"


def _form(speaker: Speaker, frame: Frame, pattern: str, way_out: str, *, passing: bool = False, does: str = "denied the request") -> Form:
    return Form(speaker, frame, re.compile(pattern, re.DOTALL), way_out, passing, does)


_NAME = r'"(?P<name>(?:[^"\\]|\\.)*)"'
_WORDS = r"(?P<words>.*)"
_HOOKS = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
_POLICY = r"(?:olicy|alidatingAdmissionPolicy)"
_OF_POLICY = "ask its owner: kubectl get validatingadmissionpolicies,mutatingadmissionpolicies {name} has its rules"
_OF_QUOTA = "free what it counts, or raise it: kubectl describe resourcequota -n NAMESPACE"
_OF_RIGHTS = "grant this identity what it names, with a (Cluster)Role"
_WAIT = "try again"

#: The first that fits decides.
FORMS: tuple[Form, ...] = (
    # apiserver/pkg/admission/plugin/webhook/errors/statuserror.go
    _form(Speaker.WEBHOOK, "", rf"admission webhook {_NAME} denied the request(?: without explanation|: {_WORDS})", "ask its owner"),
    _form(
        Speaker.WEBHOOK, "", rf"admission webhook {_NAME} (?P<words>does not support dry run)",
        f"ask its owner for sideEffects None or NoneOnDryRun in its configuration ({_HOOKS}); without it, no plan can ask it",
        does="cannot be asked by a dry run",
    ),
    # .../webhook/{{validating,mutating}}/dispatcher.go, apiserver/pkg/util/webhook/error.go
    _form(
        Speaker.WEBHOOK, "internal", rf"failed calling webhook {_NAME}[:;] {_WORDS}",
        f"see the Service and the pods that serve it ({_HOOKS}), or ask its owner", passing=True, does="does not answer the API server",
    ),
    _form(
        Speaker.WEBHOOK, "internal", rf"admission webhook {_NAME} (?P<words>attempted to modify the object.*)", "ask its owner",
        does="gives an answer that is not valid",
    ),
    # .../policy/validating/dispatcher.go; .../policy/generic/policy_dispatcher.go (PolicyError)
    _form(
        Speaker.POLICY, "forbidden",
        rf"ValidatingAdmissionPolicy '(?P<name>[^']*)'(?: with binding '[^']*')? denied request: {_WORDS}", _OF_POLICY,
    ),
    _form(Speaker.POLICY, "", rf"policy ['\"](?P<name>[^'\"]*)['\"](?: with binding '[^']*')? denied request: {_WORDS}", _OF_POLICY),
    # .../resourcequota/controller.go
    _form(
        Speaker.QUOTA, "forbidden",
        r"(?P<words>(?:(?:exceeded|failed) quota: |status unknown for quota: )(?P<name>[^,:\s]+).*"
        r"|quota usage is negative.*|insufficient quota to consume.*|unable to get previous usage.*)",
        _OF_QUOTA,
    ),
    _form(
        Speaker.QUOTA, "", rf"(?P<words>Operation cannot be fulfilled on resourcequotas {_NAME}.*)", _WAIT, passing=True,
        does="counted another request at the same moment",
    ),
    # pod-security-admission/admission/admission.go
    _form(
        Speaker.POD_SECURITY, "forbidden", rf"(?P<words>violates PodSecurity {_NAME}.*|Not allowed by PodSecurity.*)",
        "correct the pod, or the namespace's label pod-security.kubernetes.io/enforce",
    ),
    # plugin/pkg/admission/limitranger/admission.go
    _form(
        Speaker.LIMIT_RANGE, "forbidden",
        r"(?P<words>\[?(?:(?:minimum|maximum) \S+ usage per \S+ is |\S+ max limit to request ratio per ).*"
        r"|unable to .* because there was an error enforcing limit ranges)",
        "stay within it, or change it: kubectl describe limitrange -n NAMESPACE",
    ),
    # .../namespace/lifecycle/admission.go
    _form(
        Speaker.NAMESPACE, "forbidden",
        r"(?P<words>unable to create new content in namespace (?P<name>\S+) because it is being terminated)",
        "wait until the namespace is gone",
    ),
    # pkg/registry/core/pod/storage/eviction.go: checkAndDecrement
    _form(
        Speaker.BUDGET, "forbidden", r"(?P<words>pdb disruptions allowed is negative|DisruptedPods map too big.*)",
        "kube-controller-manager does not keep up with its status: see its log",
    ),
    # plugin/pkg/admission/serviceaccount/admission.go
    _form(
        Speaker.SERVICE_ACCOUNT, "forbidden",
        r"(?P<words>error looking up service account (?P<name>[^\s:]+).*|no service account specified.*|a mirror pod may not .*"
        r"|.* is not allowed because service account .* does not reference that .*)",
        "create the ServiceAccount, or name another one in the pod",
    ),
    # plugin/pkg/admission/priority/admission.go
    _form(
        Speaker.PRIORITY, "forbidden",
        r"(?P<words>no PriorityClass with name (?P<name>\S+) was found|the (?:integer|string) value of (?:priority|PreemptionPolicy).*"
        r"|PriorityClass \S+ is already marked as default.*|priority set in the pod group.*)",
        "create the PriorityClass, or correct what names it: kubectl get priorityclasses",
    ),
    # plugin/pkg/admission/noderestriction/admission.go
    _form(
        Speaker.NODE_RESTRICTION, "forbidden",
        r"(?P<words>node \"[^\"]*\" .*|is not allowed to modify labels.*|could not determine node from user.*)",
        "it limits what the identity of a kubelet may change: another identity must do this",
    ),
    # plugin/pkg/admission/podresize/admission.go
    _form(
        Speaker.POD_RESIZE, "forbidden", r"(?P<words>node didn't have enough allocatable resources: .*)",
        "a pod cannot request more than its node has: resize it to less, or let it run on a larger node",
    ),
    # plugin/pkg/admission/certificates/*, gc/gc_admission.go; pkg/registry/rbac/validation/rule.go
    _form(
        Speaker.RIGHTS, "forbidden",
        r"(?P<words>user not permitted to (?:approve|sign|attest).*|cannot set (?:an ownerRef|blockOwnerDeletion).*"
        r"|user \"(?:[^\"\\]|\\.)*\" \(groups=.*is attempting to grant RBAC permissions not currently held.*)",
        _OF_RIGHTS,
    ),
    # apiserver/pkg/admission: WaitForReady, of every plugin
    _form(Speaker.API_SERVER, "forbidden", r"(?P<words>not yet ready to handle request)", _WAIT, passing=True, does="has just started"),
    # apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go
    *(
        _form(
            Speaker.CONVERSION, frame, r"(?P<words>conversion webhook for (?P<name>[^:]*?) (?:failed|returned).*)",
            "see the Service that converts it: kubectl get crd -o yaml, spec.conversion", passing=True, does="does not convert the objects",
        )
        for frame in ("", "internal")
    ),
    # apiserver/pkg/admission/plugin/webhook/*/dispatcher.go: all webhooks together took too long
    _form(
        Speaker.WEBHOOK, "internal", r"(?P<words>admission plugin \"[^\"]*\" failed to complete (?:mutation|validation) in .*)",
        f"see which of them is slow, and shorten its timeoutSeconds ({_HOOKS})", passing=True, does="does not answer the API server",
    ),
    _form(
        Speaker.QUOTA, "internal", r"(?P<words>resource quota evaluation timed out)", _OF_QUOTA, passing=True,
        does="was not counted in time",
    ),
    # etcd: etcdserver/api/v3rpc/rpctypes/error.go
    _form(
        Speaker.STORAGE, "", r"(?P<words>etcdserver: request is too large|rpc error: code = ResourceExhausted desc = .*larger than max.*)",
        "the object is too large for etcd: give it less", does="does not take an object of that size",
    ),
    _form(
        Speaker.STORAGE, "", r"(?P<words>etcdserver: mvcc: database space exceeded.*)",
        "etcd is full and takes no writes: compact and defragment it, then `etcdctl alarm disarm`", does="takes no writes",
    ),
    _form(
        Speaker.STORAGE, "", r"(?P<words>(?:etcdserver: |rpc error: code = |storage is \(re\)initializing).*)", _WAIT, passing=True,
        does="is not ready",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class RbacRefusal:
    """The parts of an RBAC refusal: identity, verb, resource with its API group (as in a Role), scope. `elsewhere`: what another authorizer
    says, such as the identity management of a cloud: it gives the right, too, and a Role may not be the place."""

    identity: str
    verb: str
    resource: str
    scope: str
    elsewhere: str = ""


# apiserver/pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage)
_RBAC = re.compile(
    r'User "(?P<user>(?:[^"\\]|\\.)*)" cannot (?P<verb>\S+) '
    r'(?:resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)" (?P<scope>at the cluster scope|in the namespace "[^"]*")'
    r'|path "(?P<path>[^"]*)")'
)


def rbac_refusal(text: str) -> RbacRefusal | None:
    """From the message of a 403; None if RBAC did not refuse the request. Pure."""
    frame, inner = _framed(text)
    found = _RBAC.match(inner) if frame == "forbidden" else None
    if found is None:
        return None
    resource = found["path"] or found["resource"] + (f".{found['group']}" if found["group"] else "")
    reason = inner[found.end() :].removeprefix(": ") if inner[found.end() :].startswith(": ") else ""
    # RBAC's own reasons begin so (pkg/auth/authorizer/rbac: RBACAuthorizer.Authorize), the Node authorizer's so.
    elsewhere = "" if reason.startswith(("RBAC: ", "no relationship found", "unknown node", "can only ")) else reason
    return RbacRefusal(found["user"], found["verb"], resource, found["scope"] or "as a path", elsewhere)


@dataclass(frozen=True)
class Spoken:
    """An answer. `name`: of the webhook, policy, quota...; `words`: its own, on one line, at most 300 characters. `form`: None if no form
    fits, so that the status code must do. `refusal`: what RBAC refused."""

    speaker: Speaker
    words: str
    name: str = ""
    form: Form | None = None
    refusal: RbacRefusal | None = None

    @property
    def passing(self) -> bool:
        return self.form is not None and self.form.passing

    @property
    def sentence(self) -> str:
        """Who did what, and its words, in quotes that they cannot end: `admission webhook a.b denied the request: "not yet"`."""
        who = f"{self.speaker.value} {self.name}".rstrip()
        words = self.words.replace('"', "'")
        return f"{who} {self.form.does if self.form else 'says'}" + (f': "{words}"' if words else "")

    @property
    def way_out(self) -> str:
        return self.form.way_out.replace("{name}", self.name) if self.form else ""


_NODE_PROXY = re.compile(r"/api/v1/nodes/[^/?]+/proxy(?:[/?]|\Z)")
_GROUP = re.compile(r"/apis/(?P<group>[^/?]+)/")
#: pkg/server/egressselector (dialer); konnectivity's own words.
_OF_TUNNEL = re.compile(r"proxy error from|No agent available|failed to (?:get|dial) .*konnectivity|uds-|konnectivity", re.IGNORECASE)
_OVERLOAD = re.compile(r"Too many requests|the server has received too many requests", re.IGNORECASE)
# kubernetes/pkg/controlplane: groups of the API server itself end so, but for these, which another server answers.
_BUILT_IN = re.compile(r"(?:[^.]*|.*\.k8s\.io)\Z")
_METRICS = re.compile(r"(?:(?:custom|external)\.)?metrics\.k8s\.io\Z")


def spoken_by(path: str, body: bytes) -> Spoken:
    """Who answered a request for `path`, by the body of an answer that is no success."""
    status, text = _read(body)
    if status is None and text.lstrip().startswith("<"):
        return Spoken(Speaker.OTHER, one_text(text))
    text = one_text(text)
    frame, inner = _framed(text)
    if _NODE_PROXY.match(path):
        return _of_node(frame, inner, text, status)
    group = _GROUP.match(path)
    if group is not None and _aggregated(group["group"]) and (frame == "proxy" or text == "service unavailable"):
        return Spoken(Speaker.AGGREGATED, inner, group["group"], OF_AGGREGATED)
    if (refusal := rbac_refusal(text)) is not None:
        return Spoken(Speaker.RBAC, inner, refusal=refusal)
    return _by_form(frame, inner) or Spoken(Speaker.ADMISSION if frame == "forbidden" else Speaker.API_SERVER, inner)


def one_text(text: str) -> str:
    """Foreign text on one line, without what moves a cursor, cut at 300 characters."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:4096]).split())
    return text if len(text) <= 300 else text[:300] + "..."


OF_AGGREGATED = _form(
    Speaker.AGGREGATED,
    "proxy",
    "",
    "see its Service and pods: kubectl get apiservices",
    passing=True,
    does="does not answer the API server",
)
OF_KUBELET = _form(
    Speaker.KUBELET, "proxy", "", "see that the kubelet runs there, and that the control plane reaches its port", passing=True,
    does="does not answer the API server",
)  # fmt: skip
#: Only an API server that demands a CA verifies at all (pkg/kubelet/client/kubelet_client.go).
OF_DISTRUST = _form(
    Speaker.API_SERVER, "proxy", "",
    "deploys/kubelet_certificates.py gives kubelets certificates of the cluster's CA; or name the CA that signs theirs, or remove the flag:"
    " --data control_plane_flags=kube-apiserver:kubelet-certificate-authority=absent",
    does="does not trust the certificate of this kubelet by the CA of its --kubelet-certificate-authority",
)  # fmt: skip
_DISTRUST = re.compile(r"(?:remote error: )?(?:tls: failed to verify certificate: )?x509: ")
OF_TUNNEL = _form(Speaker.TUNNEL, "proxy", "", "see the konnectivity server and its agents", passing=True, does="does not reach the node")


def _of_node(frame: Frame, inner: str, text: str, status: Mapping[str, Any] | None) -> Spoken:
    """An answer from behind `nodes/NAME/proxy`: whatever is not the API server's own is the kubelet's, and a kubelet may write anything."""
    if frame == "proxy":
        form = OF_DISTRUST if _DISTRUST.match(inner) else OF_TUNNEL if _OF_TUNNEL.search(inner) else OF_KUBELET
        return Spoken(form.speaker, inner, "", form)
    if frame == "forbidden" and (refusal := rbac_refusal(text)) is not None and refusal.resource == "nodes/proxy":
        return Spoken(Speaker.RBAC, inner, refusal=refusal)
    # Reads ask no admission, so none of its forms counts here.
    own = status is not None and frame != "forbidden"
    return Spoken(Speaker.API_SERVER if own or _OVERLOAD.match(text) else Speaker.KUBELET, text)


def _aggregated(group: str) -> bool:
    return bool(_METRICS.match(group)) or not _BUILT_IN.match(group)


def _by_form(frame: Frame, inner: str) -> Spoken | None:
    for form in FORMS:
        if form.frame == frame and (found := form.pattern.match(inner)) is not None:
            groups = found.groupdict()
            return Spoken(form.speaker, groups.get("words") or "", groups.get("name") or "", form)
    return None


def _framed(text: str) -> tuple[Frame, str]:
    for frame, pattern in _FRAMES:
        if (found := pattern.match(text)) is not None:
            return frame, text[found.end() :]
    return "", text


def _read(body: bytes) -> tuple[Mapping[str, Any] | None, str]:
    """The Status object, None if it is none; and the message: of the Status, the failed checks of /readyz, else the text."""
    text = body[:65536].decode("utf-8", "replace")
    text = "; ".join(line for line in text.splitlines() if line.startswith("[-]")) or text
    try:
        found = read_json(text)
    except ValueError:
        return None, text
    return (found, str(found.get("message") or text)) if isinstance(found, dict) else (None, text)
