"""etcd as one API server uses it: the members of its cluster and their health, asked from that API server's own node.

It uses the API server's endpoints, authority and client certificate, so it can ask what the API server can reach. Sources: flags
--etcd-servers, --etcd-cafile, --etcd-certfile, --etcd-keyfile (k8s.io/apiserver/pkg/server/options/etcd.go); MemberList
through the gRPC gateway (etcd 3.4 and later: api/etcdserverpb/rpc.proto); /health (server/etcdserver/api/etcdhttp/health.go),
which answers "true" only if the member reads through a quorum and no alarm is raised.
"""

from __future__ import annotations

import http
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from roles.engine.api import errors
from roles.engine.api.client import RunCommand
from roles.engine.api.kubeconfig import Credentials, tls_context
from roles.engine.api.kubectl import curl_answer, curl_command
from roles.engine.bounds import read_json
from roles.engine.bridge.channels import Transport
from roles.engine.editing import flag_values, last_flag
from roles.engine.timeouts import patient
from roles.engine.tunnels.tunnel import Peer, Tunnel

#: Longer than etcd itself waits for a quorum before it says that it has none (7 s by default: server/config, ReqTimeout).
TIMEOUT = 10.0

_LIST = "/v3/cluster/member/list"
_HEALTH = "/health"
_FLAGS = "--etcd-cafile, --etcd-certfile, --etcd-keyfile"
_PEER = Peer("etcd", "the CA of --etcd-cafile", "check both certificates: an API server could not use them either", "curl")


class EtcdError(errors.ApiError):
    """etcd did not answer like a healthy member, or could not be asked.

    `passing`: the same request may succeed a moment later. `unproven`: the error says nothing about etcd's health, only that etcd cannot
    be asked in this way; it does not mean that something is broken.
    """

    def __init__(self, host: str, rule: str, way_out: str, *, passing: bool = False, unproven: bool = False) -> None:
        super().__init__(host, "etcd", rule, way_out)
        self.passing = passing
        self.unproven = unproven

    def __str__(self) -> str:
        return f"{self.host}: etcd: {self.rule}; {self.way_out}"

    @classmethod
    def joined(cls, failed: Sequence[EtcdError]) -> EtcdError:
        """Several failures as one. It is unproven only if all of them are; if one of them is passing, waiting may help."""
        worst = next((error for error in failed if not error.unproven), failed[0])
        return cls(
            worst.host,
            "; ".join(dict.fromkeys(error.rule for error in failed)),
            worst.way_out,
            passing=any(error.passing for error in failed),
            unproven=worst.unproven,
        )


@dataclass(frozen=True)
class EtcdAccess:
    """How the API server of `host` reaches its etcd. The files' paths are the node's; `credentials` is their content, None if all
    `servers` (URLs, as seen from that node) are plain HTTP."""

    host: str
    servers: tuple[str, ...]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    credentials: Credentials | None = field(default=None, repr=False)


@dataclass(frozen=True)
class EtcdMember:
    """One member of an etcd cluster. A learner has no vote; one that never started has no name and no URLs."""

    id: int
    name: str
    client_urls: tuple[str, ...]
    learner: bool = False

    def __str__(self) -> str:
        where = f" ({', '.join(self.client_urls)})" if self.client_urls else ""
        return f"{self.name or f'{self.id:x}'}{where}"


@dataclass(frozen=True)
class EtcdHealth:
    """The members of a cluster, and the errors of the unhealthy voting members."""

    members: tuple[EtcdMember, ...]
    unhealthy: tuple[tuple[EtcdMember, EtcdError], ...] = ()

    @property
    def voting(self) -> int:
        return sum(not member.learner for member in self.members)

    @property
    def quorum(self) -> int:
        return self.voting // 2 + 1

    def __str__(self) -> str:
        learners = len(self.members) - self.voting
        text = f"{self.voting - len(self.unhealthy)} of {self.voting} members healthy, quorum {self.quorum}"
        return text + (f", and {learners} without a vote" if learners else "")


def etcd_access(host: str, argv: Sequence[str], data: Callable[[str], bytes | None]) -> EtcdAccess:
    """How an API server with this command line reaches etcd; `data` returns the content of a file of its node.

    Raises EtcdError if a flag or a file is missing.
    """
    servers = tuple(url for value in flag_values(argv, "etcd-servers") for url in value.split(",") if url)
    if not servers:
        raise _unreadable(host, "the kube-apiserver runs without --etcd-servers")
    cafile, certfile, keyfile = (last_flag(argv, f"etcd-{name}") or "" for name in ("cafile", "certfile", "keyfile"))
    if all(url.startswith("http://") for url in servers):
        return EtcdAccess(host, servers)
    if not cafile:
        raise _unreadable(host, "the kube-apiserver runs without --etcd-cafile, so etcd's certificate cannot be verified")
    if bool(certfile) != bool(keyfile):
        raise _unreadable(host, "the kube-apiserver runs with only one of --etcd-certfile and --etcd-keyfile")
    contents = {path: data(path) for path in (cafile, certfile, keyfile) if path}
    # An empty authority must not be passed on: Python would then trust those of the operator's own system.
    if missing := [path for path, content in contents.items() if not content]:
        raise _unreadable(host, f"{', '.join(missing)}, which the kube-apiserver's flags name, cannot be read on the node or is empty")
    # PEM is ASCII; the text around it need not be.
    authority = (contents[cafile] or b"").decode("ascii", "ignore")
    credentials = Credentials(authority, contents[certfile] if certfile else None, contents[keyfile] if keyfile else None)
    return EtcdAccess(host, servers, cafile, certfile, keyfile, credentials)


def _unreadable(host: str, rule: str) -> EtcdError:
    return EtcdError(host, rule, f"daytwo asks etcd as the API server does, with --etcd-servers, {_FLAGS}", unproven=True)


class Members:
    """The etcd cluster of one API server, asked from its node.

    Through the SSH `transport`; without one, or if forwarding is forbidden, with curl on the node through `run`, and the node's own
    files. Raises EtcdError if the certificates cannot be used.
    """

    def __init__(self, access: EtcdAccess, transport: Transport | None, run: RunCommand | None = None) -> None:
        self._access = access
        self._transport = transport
        self._run = run
        self._forbidden: errors.ForwardingForbidden | None = None
        try:
            self._context = tls_context(access.credentials) if access.credentials else None
        except errors.KubeconfigError as error:
            raise _unreadable(access.host, f"the files of {_FLAGS} cannot be used ({str(error).rpartition(': ')[2]})") from None

    def list(self, timeout: float = TIMEOUT) -> tuple[EtcdMember, ...]:
        """All members, sorted by name, from the first of the API server's endpoints that answers. Raises EtcdError."""
        failed = []
        for url in self._access.servers:
            try:
                return self._listing(url, timeout)[1]
            except EtcdError as error:
                failed.append(error)
        raise EtcdError.joined(failed)

    def health(self, timeout: float = TIMEOUT) -> EtcdHealth:
        """The members, and the voting ones that are not healthy. Raises EtcdError if the members are not known."""
        members = self.list(timeout)
        unhealthy = []
        for member in members:
            if not member.learner:
                try:
                    self.check(member, timeout)
                except EtcdError as error:
                    unhealthy.append((member, error))
        return EtcdHealth(members, tuple(unhealthy))

    def check(self, member: EtcdMember, timeout: float = TIMEOUT) -> None:
        """Raises EtcdError unless the member itself reports, at one of its client URLs, that it is healthy."""
        if not member.client_urls:
            raise EtcdError(
                self._access.host,
                f"member {member.id:x} was added, but has never started (it has no client URLs)",
                f"start it, or remove it: `etcdctl member remove {member.id:x}`",
            )
        failed = []
        # A loopback address is this node's own: another member may answer there.
        for url in sorted(member.client_urls, key=_is_loopback):
            try:
                return self._check_at(url, member, timeout)
            except EtcdError as error:
                failed.append(error)
        raise EtcdError.joined(failed)

    def _check_at(self, url: str, member: EtcdMember, timeout: float) -> None:
        status, body = self._ask(url, _HEALTH, timeout)
        answer = _object(body)
        if status != http.HTTPStatus.OK or str(answer.get("health")).lower() != "true":
            reason = str(answer.get("reason") or "") or _short(body)
            alarm = reason.startswith("ALARM")
            raise EtcdError(
                self._access.host,
                f"{url}{_HEALTH} says HTTP {status}, {reason or 'without a reason'}",
                "see `etcdctl alarm list`, fix what raised it, then `etcdctl alarm disarm`"
                if alarm
                else "see etcd's log there, and `etcdctl endpoint status --cluster`",
                passing=status in _NOT_NOW and not alarm,
                unproven=status not in (http.HTTPStatus.OK, *_NOT_NOW),
            )
        answered, _ = self._listing(url, timeout)
        if answered != member.id:
            raise EtcdError(
                self._access.host,
                f"member {answered:x} answers at {url}, not member {member.id:x}, which advertises this URL",
                "set its --advertise-client-urls to an address that only it has",
            )

    def _listing(self, url: str, timeout: float) -> tuple[int, tuple[EtcdMember, ...]]:
        """ID of the member that answers at `url`, and its list of members."""
        status, body = self._ask(url, _LIST, timeout, b"{}")
        if status != http.HTTPStatus.OK:
            raise EtcdError(
                self._access.host,
                f"{url}{_LIST} says HTTP {status} ({_short(body)})",
                "try again" if status in _NOT_NOW else "is it etcd 3.4 or later, with its gRPC gateway enabled (--enable-grpc-gateway)?",
                passing=status in _NOT_NOW,
                unproven=status not in _NOT_NOW,
            )
        try:
            found = read_json(body)
            # Go's gateway omits empty fields, and writes 64-bit numbers as text.
            members = (
                EtcdMember(int(one["ID"]), one.get("name") or "", tuple(one.get("clientURLs") or ()), bool(one.get("isLearner")))
                for one in found["members"]
            )
            return int(found["header"]["member_id"]), tuple(sorted(members, key=lambda member: (member.name, member.id)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            rule = f"{url}{_LIST}: the answer is not a list of members ({type(error).__name__}: {error})"
            raise EtcdError(self._access.host, rule, "is this the address of an etcd member?", unproven=True) from None

    def _ask(self, url: str, path: str, timeout: float, body: bytes | None = None) -> tuple[int, bytes]:
        host, url = self._access.host, url.rstrip("/")
        timeout = patient(timeout)
        try:
            if self._transport is not None and self._forbidden is None:
                try:
                    return self._through(self._transport, url).request(path, timeout, body)
                except errors.ForwardingForbidden as error:
                    if self._run is None:
                        raise
                    self._forbidden = error
            if self._run is None:
                raise errors.ForwardingForbidden(
                    host, path, "there is no SSH connection to forward through", "provide a way to run curl on the node"
                )
            return self._by_curl(self._run, url, path, timeout, body)
        except EtcdError:
            raise
        except errors.ApiError as error:
            unproven = not error.passing and not isinstance(error, errors.ApiConnectionLost)
            raise EtcdError(host, error.rule, error.way_out, passing=error.passing, unproven=unproven) from error

    def _through(self, transport: Transport, url: str) -> Tunnel:
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError):
            raise _odd_url(self._access.host, url) from None
        if not parts.hostname:
            raise _odd_url(self._access.host, url)
        context = None
        if parts.scheme == "https":
            context = self._context
            if context is None:
                raise _unreadable(self._access.host, f"{url} uses TLS, but --etcd-servers does not")
        return Tunnel(transport, (parts.hostname, port), self._access.host, context=context, name=parts.hostname, peer=_PEER)

    def _by_curl(self, run: RunCommand, url: str, path: str, timeout: float, body: bytes | None) -> tuple[int, bytes]:
        if not url.startswith(("http://", "https://")):
            raise _odd_url(self._access.host, url)
        arguments: list[str] = []
        for option, file in (("cacert", self._access.cafile), ("cert", self._access.certfile), ("key", self._access.keyfile)):
            arguments += [f"--{option}", file] if file else []
        if body is not None:
            arguments += ["--header", "Content-Type: application/json", "--data", body.decode()]
        ok, out, err = run(curl_command(timeout, *arguments, url + path))
        status, answer = curl_answer(out)
        if ok and status:
            return status, answer
        raise self._curl_failed(path, " ".join(err.split()) or "curl failed without a message")

    def _curl_failed(self, path: str, text: str) -> errors.ApiError:
        host, lower = self._access.host, text.lower()
        found = re.search(r"curl: \(([0-9]+)\)", text)
        code = int(found.group(1)) if found else None
        if code is None and "not found" in lower:
            because = self._forbidden.rule if self._forbidden else "there is no SSH connection to forward through"
            return errors.ForwardingForbidden(
                host, path, f"{because}, and there is no curl on the node ({text})", "allow forwarding, or install curl"
            )
        if (code in _CURL_TLS and "reset by peer" not in lower) or "alert" in lower:
            return errors.TLS(host, path, f"curl on the node says: {text}", _PEER.tls_way_out)
        if code in _CURL_TIMEOUT:
            return errors.Timeout(host, path, f"curl on the node says: {text}", "check the node's load and its etcd")
        if code in _CURL_UNREACHABLE:
            return errors.Unreachable(host, path, f"curl on the node says: {text}", "check the etcd there: `crictl ps -a`")
        return errors.Unusable(host, path, f"curl on the node failed: {text}", "run it by hand there")


#: Exit codes of curl (libcurl-errors(3)): resolving, connecting, an empty answer, sending and receiving; time; TLS and its files.
_CURL_UNREACHABLE = frozenset({6, 7, 35, 52, 55, 56})
_CURL_TIMEOUT = frozenset({28})
_CURL_TLS = frozenset({35, 51, 53, 54, 58, 59, 60, 66, 77, 83, 90})
_NOT_NOW = frozenset({429, 500, 502, 503, 504})


def _odd_url(host: str, url: str) -> EtcdError:
    return EtcdError(host, f"{url} is not an http:// or https:// URL", "daytwo asks etcd through its HTTP gateway", unproven=True)


def _is_loopback(url: str) -> bool:
    name = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _object(body: bytes) -> dict[str, object]:
    try:
        found = read_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _short(body: bytes) -> str:
    text = " ".join(body[:4096].decode("utf-8", "replace").split())
    return text if len(text) <= 200 else text[:200] + "..."
