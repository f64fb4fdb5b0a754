"""The API through a real SSH transport and real TLS, on loopback."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from roles.engine import timeouts
from roles.engine.api import Api, ApiConnectionLost, ApiError, Forbidden, KubectlApi, NotFound, client
from roles.engine.api.errors import TLS, ForwardingForbidden, Timeout, Unauthorized, Unreachable, Unusable
from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.tunnels import Tunnel, TunnelApi, tunnel
from roles.engine.tunnels.tunnel import KEPT, MOST_KEPT
from tests.unit.api.world import ApiServer, Authority, SshServer, certificate_user, kubeconfig, through
from tests.unit.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of the client."""
    made = Clock()
    monkeypatch.setattr(client, "time", made)
    return made


def test_the_client_certificate_arrives_and_a_large_body_is_whole(api: Api, server: ApiServer) -> None:
    body = os.urandom(3_000_000)
    server.answer = lambda path, who: (200, body) if (path, who) == ("/metrics?a=b", "admin") else (404, b"")
    assert api.get_raw("/metrics?a=b") == body


def test_a_token_is_sent(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    through(ssh, server.port, kubeconfig(authority, {"token": "abc"})).get_raw("/")
    assert server.headers["Authorization"] == "Bearer abc"


def _unverified(ssh: SshServer, server: ApiServer, user: dict[str, str], authority: Authority) -> Api:
    # As the controller-manager and the scheduler are asked, whose certificates no authority has signed.
    credentials = parse_kubeconfig(kubeconfig(Authority("the cluster's"), user))
    return TunnelApi(ssh.transport, credentials, ("127.0.0.1", server.port), "cp1", component="kube-scheduler")


def test_a_token_never_goes_to_a_peer_that_was_not_verified(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    api = _unverified(ssh, server, {"token": "abc"}, authority)
    with pytest.raises(ApiError, match="bearer token, which is not sent to such a server; put a kubeconfig with a client certificate"):
        api.get_raw("/metrics", wait=60)
    with pytest.raises(ApiError, match="bearer token"):
        api.apply("/x", {})
    assert not ssh.connections and not server.headers and not server.sent


def test_such_a_peer_sees_the_client_certificate_alone(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    seen: list[str | None] = []
    server.answer = lambda path, who: (seen.append(who), (200, b""))[1]
    _unverified(ssh, server, {"token": "abc", **certificate_user(authority)}, authority).get_raw("/metrics")
    assert seen == ["admin"] and "Authorization" not in server.headers


def test_a_tunnel_without_tls_has_no_token_to_send(ssh: SshServer, tmp_path: Path) -> None:
    plain = ApiServer(None, tmp_path)
    try:
        Tunnel(ssh.transport, ("127.0.0.1", plain.port), "cp1", context=None, name="cp1", token="abc").request("/")
        assert plain.headers and "Authorization" not in plain.headers
    finally:
        plain.close()


def test_what_is_named_as_a_way_out_is_one(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    config = kubeconfig(authority, certificate_user(authority))
    with pytest.raises(TLS) as caught:
        through(ssh, server.port, config, "nope").get_raw("/")
    # It is no data key.
    assert "tls_server_name" not in str(caught.value)


def test_no_descriptor_and_no_file_is_left(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    config = kubeconfig(authority, certificate_user(authority))
    through(ssh, server.port, config).get_raw("/")
    links = [link for n in os.listdir("/proc/self/fd") if (link := _link(n))]
    assert links
    assert not [link for link in links if "memfd" in link]


def _link(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # the listing's own descriptor
        return ""


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (429, Unreachable),
        (500, Unreachable),
        (503, Unreachable),
        (302, Unusable),
        (0, Unreachable),
    ],
)
def test_each_status_has_its_error(api: Api, server: ApiServer, status: int, error: type[ApiError]) -> None:
    server.answer = lambda path, who: (status, b'{"message": "the server\'s own words"}')
    with pytest.raises(error) as caught:
        api.get_raw("/here")
    assert type(caught.value) is error
    assert str(caught.value).startswith("cp1: GET /here: ")
    assert status == 0 or "the server's own words" in str(caught.value)


def test_a_server_of_another_authority_is_not_believed(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    other = Authority("other")
    seen: list[str] = []
    server.answer = lambda path, who: (seen.append(path), (200, b""))[1]
    config = kubeconfig(other, certificate_user(authority))
    with pytest.raises(TLS, match="not valid for 'kubernetes' by the kubeconfig's CA"):
        through(ssh, server.port, config).get_raw("/", wait=5)
    assert not seen


def test_the_name_is_verified(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    config = kubeconfig(authority, certificate_user(authority))
    with pytest.raises(TLS, match="nope"):
        through(ssh, server.port, config, "nope").get_raw("/")


def test_the_component_that_does_not_answer_is_named(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    server.close()
    with pytest.raises(Unreachable, match="check the kube-scheduler there"):
        _unverified(ssh, server, certificate_user(authority), authority).get_raw("/metrics")


def test_nothing_listens(ssh: SshServer, server: ApiServer, authority: Authority, clock: Clock) -> None:
    server.close()
    config = kubeconfig(authority, certificate_user(authority))
    api = through(ssh, server.port, config)
    api.probe()
    with pytest.raises(Unreachable, match=f"https://127.0.0.1:{server.port} as seen from cp1"):
        api.get_raw("/")
    begun, tries = clock.now, len(ssh.connections)
    with pytest.raises(Unreachable, match="tried for"):
        api.get_raw("/", wait=1.2)
    assert 0.5 < clock.now - begun < 1.3 and len(ssh.connections) - tries > 1


def test_it_waits_for_an_api_that_is_away_and_for_its_rules(
    ssh: SshServer, server: ApiServer, authority: Authority, tmp_path: Path
) -> None:
    server.close()
    config = kubeconfig(authority, certificate_user(authority))
    back: list[ApiServer] = []
    asked: list[str] = []

    def answer(path: str, who: str | None) -> tuple[int, bytes]:
        asked.append(path)
        return (403, b"RBAC is not read yet") if len(asked) == 1 else (200, b"back")

    def return_() -> None:
        while len(ssh.connections) < 2:
            time.sleep(0.01)
        made = ApiServer(authority, tmp_path, server.port)
        made.answer = answer
        back.append(made)

    thread = threading.Thread(target=return_)
    thread.start()
    assert through(ssh, server.port, config).get_raw("/readyz", wait=600) == b"back"
    thread.join()
    back[0].close()


def test_what_one_api_reads_comes_over_one_connection_that_probe_opened(api: TunnelApi, ssh: SshServer, server: ApiServer) -> None:
    server.answer = lambda path, who: (200, path.encode() * 50_000)
    api.probe()
    assert [api.get_raw(path) for path in ("/a", "/b")] == [b"/a" * 50_000, b"/b" * 50_000]
    assert len(ssh.connections) == 1


def test_each_api_has_connections_of_its_own(ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    config = kubeconfig(authority, certificate_user(authority))
    for made in range(1, MOST_KEPT + 4):
        through(ssh, server.port, config).get_raw("/")
        assert len(ssh.connections) == made
        # The oldest ones are closed.
        kept = min(made, MOST_KEPT)
        channels = [channel for channel in ssh.transport._channels.values() if not channel.closed]  # type: ignore[attr-defined]
        assert len(KEPT[ssh.transport]) == len(channels) == kept


def test_what_an_api_reads_may_be_compressed(api: Api, server: ApiServer) -> None:
    plain = b"kubernetes_feature_enabled 1\n" * 10_000
    server.encode = gzip.compress
    server.answer = lambda path, who: (200, plain)
    assert api.get_raw("/metrics") == plain and server.headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("encode", "raised", "words"),
    [
        (lambda body: gzip.compress(body)[:-9], Unusable, "its compressed answer is incomplete, or longer than 1 MiB"),
        (lambda body: b"\0" + gzip.compress(body), Unreachable, "its compressed answer is damaged"),
        (lambda body: gzip.compress(bytes((1 << 20) + 1)), Unusable, "its compressed answer is incomplete, or longer than 1 MiB"),
    ],
    ids=["cut", "damaged", "bomb"],
)
def test_a_compressed_answer_that_is_not_whole(
    api: Api, server: ApiServer, monkeypatch: pytest.MonkeyPatch, encode: Callable[[bytes], bytes], raised: type[ApiError], words: str
) -> None:
    monkeypatch.setattr(tunnel, "MOST_BYTES", 1 << 20)
    server.encode = encode
    with pytest.raises(raised, match=words):
        api.get_raw("/metrics")


def test_a_write_has_a_connection_of_its_own(api: Api, ssh: SshServer) -> None:
    api.get_raw("/")
    with pytest.raises(Unusable):  # "ok" is no object
        api.apply("/x", {})
    assert len(ssh.connections) == 2


@pytest.mark.parametrize("status", [403, 500])
def test_the_connection_of_an_api_that_is_not_well_is_not_kept(api: Api, ssh: SshServer, server: ApiServer, status: int) -> None:
    server.answer = lambda path, who: (status, b"")
    for _ in range(2):
        with pytest.raises(ApiError):
            api.get_raw("/readyz")
    assert len(ssh.connections) == 2


def test_a_kept_connection_that_the_server_closed_is_no_error(api: Api, ssh: SshServer, server: ApiServer) -> None:
    says = iter([(200, b"one"), (0, b""), (200, b"two")])
    server.answer = lambda path, who: next(says)
    assert [api.get_raw("/"), api.get_raw("/")] == [b"one", b"two"]
    assert len(ssh.connections) == 2


def test_who_reads_at_the_same_time_gets_another_connection(api: Api, ssh: SshServer, server: ApiServer) -> None:
    inside, released = threading.Event(), threading.Event()

    def answer(path: str, who: str | None) -> tuple[int, bytes]:
        if path == "/slow":
            inside.set()
            released.wait(600)
        return 200, path.encode()

    server.answer = answer
    assert api.get_raw("/first") == b"/first"
    slow: list[bytes] = []
    thread = threading.Thread(target=lambda: slow.append(api.get_raw("/slow", timeout=600)))
    thread.start()
    assert inside.wait(600)
    assert api.get_raw("/quick") == b"/quick" and not slow
    released.set()
    thread.join()
    assert slow == [b"/slow"] and len(ssh.connections) == 2


def test_a_connection_that_is_gone_is_forgotten(api: Api, ssh: SshServer, server: ApiServer, authority: Authority) -> None:
    api.get_raw("/")
    assert ssh.transport in KEPT
    ssh.close()
    other = SshServer()
    try:
        through(other, server.port, kubeconfig(authority, certificate_user(authority))).get_raw("/")
        assert other.transport in KEPT and ssh.transport not in KEPT
    finally:
        other.close()


NOBODY = b'forbidden: User "system:anonymous" cannot get path "/metrics"'


def test_one_that_knows_no_credentials_yet_is_waited_for(api: Api, server: ApiServer) -> None:
    asked: list[str] = []

    def answer(path: str, who: object) -> tuple[int, bytes]:
        asked.append(path)
        return (403, NOBODY) if len(asked) < 3 else (200, b"back")

    server.answer = answer
    assert api.get_raw("/metrics", wait=600) == b"back"


def test_one_that_never_knows_them_is_told_without_asking_for_rights_for_everybody(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (403, NOBODY)
    with pytest.raises(Forbidden) as caught:
        api.get_raw("/metrics")
    assert (
        "treats these credentials as anonymous" in str(caught.value)
        and "try again" in str(caught.value)
        and "grant" not in str(caught.value)
    )


def test_a_403_is_not_waited_on_when_the_api_was_never_away(api: Api, server: ApiServer, clock: Clock) -> None:
    server.answer = lambda path, who: (403, b"")
    begun = clock.now
    with pytest.raises(Forbidden):
        api.get_raw("/", wait=30)
    assert clock.now - begun < 5


def test_a_slow_answer_is_cut_off(api: Api, server: ApiServer) -> None:
    released = threading.Event()
    waited: list[bool] = []
    server.answer = lambda path, who: (waited.append(released.wait(600)), (200, b""))[1]
    with pytest.raises(Timeout):
        api.get_raw("/", timeout=1)
    assert not waited, "it came with the answer"
    released.set()


def test_with_patience_a_slow_answer_is_waited_for(api: Api, server: ApiServer) -> None:
    server.answer = lambda path, who: (threading.Event().wait(1.5), (200, b"late"))[1]
    with pytest.raises(Timeout):
        api.get_raw("/", timeout=1)
    timeouts.set_factor([30])
    try:
        assert api.get_raw("/", timeout=1) == b"late"
    finally:
        timeouts.set_factor([])


def test_a_lost_ssh_connection_is_not_waited_on(api: Api, ssh: SshServer, clock: Clock) -> None:
    ssh.close()
    begun = clock.now
    with pytest.raises(ApiConnectionLost, match="fix the connection to the node"):
        api.get_raw("/", wait=30)
    assert clock.now - begun < 5


def test_forbidden_forwarding_without_another_way(ssh: SshServer, authority: Authority) -> None:
    ssh.refusal = paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
    config = kubeconfig(authority, certificate_user(authority))
    with pytest.raises(ForwardingForbidden, match="AllowTcpForwarding"):
        through(ssh, 6443, config).probe()


def test_reading_by_kubectl() -> None:
    ran: list[str] = []

    def run(command: str) -> tuple[bool, str, str]:
        ran.append(command)
        return True, '{"a": 1}', ""

    assert KubectlApi(run, ("10.0.0.1", 6443), "cp1").get_json("/a?b=c", timeout=2) == {"a": 1}
    assert ran == [
        "kubectl --kubeconfig=/etc/kubernetes/admin.conf --server=https://10.0.0.1:6443 --tls-server-name=kubernetes "
        "--request-timeout=2000ms get '--raw=/a?b=c' </dev/null"
    ]


# The words are kubectl 1.36's own, seen on a node of the lab, but for the last three.
@pytest.mark.parametrize(
    ("words", "error"),
    [
        ('Error from server (NotFound): nodes "nope" not found', NotFound),
        ('Error from server (Forbidden): forbidden: User "u" cannot get path "/metrics"', Forbidden),
        ("The connection to the server 127.0.0.1:6444 was refused - did you specify the right host or port?", Unreachable),
        ("Unable to connect to the server: tls: failed to verify certificate: x509: certificate is valid for cp1, not nope", TLS),
        (
            "Unable to connect to the server: net/http: request canceled while waiting for connection "
            "(Client.Timeout exceeded while awaiting headers)",
            Timeout,
        ),
        ("Please enter Username: error: EOF", Unauthorized),
        ("error: stat /nope: no such file or directory", Unusable),
        ("error: You must be logged in to the server (Unauthorized)", Unauthorized),
        ("Error from server (ServiceUnavailable): the server is currently unable to handle the request", Unreachable),
        ("sh: 1: kubectl: not found", ForwardingForbidden),
    ],
)
def test_what_kubectl_says(words: str, error: type[ApiError]) -> None:
    api = KubectlApi(lambda command: (False, "", words + "\n"), ("127.0.0.1", 6443), "cp1")
    with pytest.raises(error) as caught:
        api.get_raw("/here")
    assert type(caught.value) is error
    assert "cp1" in str(caught.value)


def test_a_path_is_checked(api: Api) -> None:
    for path in ("readyz", "/a b", "/a\r\nX: y", "/ä"):
        with pytest.raises(ValueError, match="percent-encoded"):
            api.get_raw(path)


def test_no_json(api: Api, server: ApiServer) -> None:
    for body in (b"<html>", b"[]"):
        server.answer = lambda path, who, body=body: (200, body)
        with pytest.raises(Unusable):
            api.get_json("/")
