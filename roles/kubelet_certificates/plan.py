"""What a kubelet serves now, and which of its requests may be approved. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roles.engine.certificates import Certificate
from roles.engine.certificates.approval import (
    ExpectedNames,
    NodeIdentity,
    expected_names,
    given_up,
    is_due,
    is_pending,
    objections,
    requester,
)
from roles.engine.editing import last_flag
from roles.engine.folding import shortened
from roles.engine.harmless import one_line
from roles.engine.kube.fields import meta_of, spec_of
from roles.engine.proof.presented import Presented
from roles.engine.transaction import Refusal

Standing = Literal["signed", "self-signed", "other", "none"]
#: How many requests a plan names one by one: who has a node's credential can make any number.
MOST_NAMED = 5
_FIELD = "serverTLSBootstrap"
_FILES = {"tlsCertFile": "tls-cert-file", "tlsPrivateKeyFile": "tls-private-key-file"}


@dataclass(frozen=True)
class NodeStanding:
    """One kubelet. `standing`: of the certificate that it serves: signed by the cluster's CA and valid for its address; self-signed;
    another one; none at all. `asks`: its kubelet asks the cluster for its certificate (serverTLSBootstrap). `request`: the request to
    approve now, None if there is none; `not_approved`: requests in its name that must not be approved, and why."""

    host: str
    name: str
    presented: Presented
    expected: ExpectedNames
    asks: bool
    request: Mapping[str, Any] | None = None
    not_approved: tuple[str, ...] = ()

    @property
    def standing(self) -> Standing:
        if self.presented.certificate is None:
            return "none"
        if self.presented.verified:
            return "signed"
        return "self-signed" if is_kubelets_own(self.presented.certificate) else "other"

    @property
    def text(self) -> str:
        """What it serves, for people."""
        certificate = self.presented.certificate
        if certificate is None:
            return f"no certificate ({one_line(self.presented.problem) or 'none is presented'})"
        until = f"until {certificate.not_after:%Y-%m-%d}"
        match self.standing:
            case "signed":
                return f"signed by the cluster's CA, {until}"
            case "self-signed":
                return f"signed by itself, {until}"
        return f"not valid by the cluster's CA ({one_line(self.presented.problem)}), {until}"


def is_kubelets_own(certificate: Certificate) -> bool:
    """Signed by a kubelet's own CA (client-go/util/cert, GenerateSelfSignedCertKey: CN NAME-ca@TIME), or by its own key."""
    return certificate.is_self_signed or "-ca@" in certificate.issuer


def standing(
    host: str,
    identity: NodeIdentity,
    presented: Presented,
    requests: Sequence[Mapping[str, Any]],
    taken: Mapping[str, str],
    *,
    asks: bool,
) -> NodeStanding:
    """`requests`: all pending ones for serving certificates, the oldest first; `taken`: names that others have."""
    expected = expected_names(identity, taken)
    own = [item for item in requests if is_pending(item) and requester(item) == identity.name]
    judged = [(item, objections(item, identity.name, expected) or _not_waited_for(item, presented, expected, asks)) for item in own]
    fitting = [item for item, why in judged if not why]
    bad = [f"{name_of(item)}: {'; '.join(why)}" for item, why in judged if why]
    bad += [f"{name_of(item)}: its kubelet has given it up: it has asked again" for item in fitting[:-1]]
    return NodeStanding(host, identity.name, presented, expected, asks, fitting[-1] if fitting else None, tuple(bad))


def _not_waited_for(item: Mapping[str, Any], presented: Presented, expected: ExpectedNames, asks: bool) -> list[str]:
    """Why a kubelet would not take what this request gets. What it does not wait for is of use to others only."""
    if not asks:
        return [f"its kubelet asks for no certificate ({_FIELD} is not set)"]
    certificate = presented.certificate
    if certificate is None or not presented.verified:
        return []
    if given_up(item, certificate):
        return ["its kubelet has given it up: it is older than the certificate that it serves"]
    if not is_due(item, certificate, expected.names):
        return ["its kubelet has not made it: the certificate that it serves is not yet due, so something else uses the node's credential"]
    return []


def given_files(argv: Sequence[str], configuration: Mapping[str, Any]) -> list[str]:
    """The fields that give a kubelet certificate files of somebody else. `configuration`: that of its files. /configz cannot decide it: a
    kubelet without a certificate enters its self-signed one there (cmd/kubelet/app/server.go, InitializeTLS)."""
    return [field for field, flag in _FILES.items() if last_flag(argv, flag) or configuration.get(field)]


def refusals(one: NodeStanding, bootstrap: bool) -> list[object]:
    """Why this node must not get a certificate, before anything is written. `bootstrap`: its kubelet is to be restarted with
    serverTLSBootstrap."""
    found: list[object] = []
    if one.expected.problems and (bootstrap or one.request is not None or one.not_approved):
        found.append(
            Refusal(
                one.host,
                f"its kubelet would ask for names that are not proven to be its own: {'; '.join(one.expected.problems)}",
                "correct the addresses of the node (--node-ip, --hostname-override); for names that a node cannot have itself, vouch for"
                " them in its data: serving_names",
            )
        )
    elif one.asks and one.standing != "signed" and one.request is None:
        bad = f"; not approved: {listed(one.not_approved)}" if one.not_approved else ""
        found.append(
            Refusal(
                one.host,
                f"its kubelet asks the cluster for its certificate, serves {one.text}, and has no request that can be approved{bad}",
                "a kubelet asks again within 15 minutes, or when it is restarted; then run this again",
            )
        )
    return found


def strangers(requests: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Pending requests that no node of the run has made."""
    return [
        f"{name_of(item)}: made by {one_line(str(spec_of(item).get('username') or 'nobody'))}, which is no node of this run"
        for item in requests
        if is_pending(item) and requester(item) not in names
    ]


def name_of(item: Mapping[str, Any]) -> str:
    return one_line(str(meta_of(item).get("name", "")))


def listed(texts: Sequence[str]) -> str:
    return shortened(texts, mark=";")
