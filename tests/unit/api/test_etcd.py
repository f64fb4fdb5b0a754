"""etcd asked as an API server asks it, through a real SSH transport and real TLS, on loopback."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.engine import tunnels
from tests.unit.api.world import Authority, Etcd, SshServer
from tests.unit.node.proc import STATIC, Proc

IDS = (0x6281741AB2DB29E, 2, 3)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("etcd-ca")


@pytest.fixture
def etcd(authority: Authority, tmp_path: Path) -> Iterator[Etcd]:
    made = Etcd(authority, tmp_path, *IDS)
    yield made
    made.close()


@pytest.fixture
def access(authority: Authority, tmp_path: Path) -> Callable[..., tunnels.etcd.EtcdAccess]:
    """An API server's access to endpoints; its files are really there, for curl."""
    certificate, key = authority.issue("apiserver-etcd-client")
    for name, data in (("etcd-ca.crt", authority.pem), ("client.crt", certificate), ("client.key", key)):
        (tmp_path / name).write_bytes(data)
    flags = [f"--etcd-cafile={tmp_path}/etcd-ca.crt", f"--etcd-certfile={tmp_path}/client.crt", "--etcd-keyfile", f"{tmp_path}/client.key"]

    def make(*urls: str) -> tunnels.etcd.EtcdAccess:
        argv = ["kube-apiserver", f"--etcd-servers={','.join(urls)}", *flags]
        return tunnels.etcd.etcd_access("cp1", argv, lambda path: Path(path).read_bytes())

    return make


@pytest.fixture
def members(etcd: Etcd, ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess]) -> tunnels.etcd.Members:
    return tunnels.etcd.Members(access(etcd.servers[2].url), ssh.transport)


def shell(command: str) -> tuple[bool, str, str]:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout, done.stderr


def test_the_members_are_listed_by_a_post_with_the_api_servers_certificate(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    found = members.list()
    assert [(member.id, member.name, member.learner) for member in found] == [
        (2, "cp2", False),
        (3, "cp3", False),
        (IDS[0], f"cp{IDS[0]}", False),
    ]
    assert found[0].client_urls == (etcd.servers[2].url,)
    assert etcd.servers[2].posted == [("/v3/cluster/member/list", b"{}")]
    assert etcd.servers[2].headers["Content-Type"] == "application/json"


def test_all_are_healthy_and_each_was_asked_itself(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    health = members.health()
    assert str(health) == "3 of 3 members healthy, quorum 2"
    assert health.unhealthy == ()
    assert all(server.posted for server in etcd.servers.values())


@pytest.mark.parametrize(
    ("answer", "words", "passing", "unproven"),
    [
        ((503, b'{"health":"false","reason":"RAFT NO LEADER"}'), "RAFT NO LEADER", True, False),
        ((503, b'{"health":"false","reason":"ALARM NOSPACE"}'), "etcdctl alarm disarm", False, False),
        ((200, b'{"health":"false"}'), 'HTTP 200, {"health":"false"}', False, False),
        ((200, b"true"), "HTTP 200", False, False),
        ((404, b"404 page not found"), "HTTP 404", False, True),
        ((0, b""), "closed the connection", True, False),
    ],
)
def test_a_member_that_is_not_well(
    members: tunnels.etcd.Members, etcd: Etcd, answer: tuple[int, bytes], words: str, passing: bool, unproven: bool
) -> None:
    etcd.health[3] = answer
    health = members.health()
    ((member, error),) = health.unhealthy
    assert (member.name, error.passing, error.unproven) == ("cp3", passing, unproven)
    assert words in str(error) and str(error).startswith("cp1: etcd: ")
    assert str(health) == "2 of 3 members healthy, quorum 2"


def test_a_member_that_is_gone(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    etcd.servers[3].close()
    ((member, error),) = members.health().unhealthy
    assert member.name == "cp3" and error.passing
    assert f"nothing accepts connections at {etcd.servers[3].url} as seen from cp1" in str(error)


def test_another_member_at_its_address_does_not_count_for_it(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    etcd.answers_as[3] = IDS[0]
    ((member, error),) = members.health().unhealthy
    assert member.name == "cp3" and not error.passing and not error.unproven
    assert f"member 6281741ab2db29e answers at {etcd.servers[3].url}, not member 3, which advertises this URL" in str(error)


def test_one_of_its_addresses_is_enough(members: tunnels.etcd.Members, etcd: Etcd, ssh: SshServer) -> None:
    etcd.members[2]["clientURLs"].insert(0, "https://127.0.0.9:1")
    assert members.health().unhealthy == ()
    assert ("127.0.0.9", 1) in ssh.connections


def test_who_votes(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    etcd.members[2]["isLearner"] = True
    etcd.health[3] = (503, b"")
    assert str(members.health()) == "2 of 2 members healthy, quorum 2, and 1 without a vote"
    etcd.members.append({"ID": "255", "peerURLs": ["https://10.0.0.9:2380"]})
    health = members.health()
    assert str(health) == "2 of 3 members healthy, quorum 2, and 1 without a vote"
    ((_, error),) = health.unhealthy
    assert "`etcdctl member remove ff`" in str(error) and not error.passing and not error.unproven


def test_the_next_endpoint_is_asked(etcd: Etcd, ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess]) -> None:
    etcd.servers[2].close()
    both = access(etcd.servers[2].url, etcd.servers[3].url + "/")
    assert len(tunnels.etcd.Members(both, ssh.transport).list()) == 3


def test_no_endpoint_answers(etcd: Etcd, ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess]) -> None:
    etcd.servers[2].close()
    with pytest.raises(tunnels.etcd.EtcdError, match="nothing accepts connections") as caught:
        tunnels.etcd.Members(access(etcd.servers[2].url, "unix:///run/etcd.sock"), ssh.transport).list()
    assert caught.value.passing and not caught.value.unproven
    assert "unix:///run/etcd.sock" in str(caught.value)


def test_without_tls(ssh: SshServer, tmp_path: Path) -> None:
    etcd = Etcd(None, tmp_path, 1)
    access = tunnels.etcd.etcd_access("cp1", ["kube-apiserver", f"--etcd-servers={etcd.servers[1].url}"], {}.get)
    assert str(tunnels.etcd.Members(access, ssh.transport).health()) == "1 of 1 members healthy, quorum 1"
    assert str(tunnels.etcd.Members(access, None, shell).health()) == "1 of 1 members healthy, quorum 1"
    etcd.members[0]["clientURLs"] = ["https://127.0.0.1:1"]
    ((_, error),) = tunnels.etcd.Members(access, ssh.transport).health().unhealthy
    assert error.unproven
    etcd.close()


def test_an_etcd_of_another_authority_is_not_believed(
    ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess], tmp_path: Path
) -> None:
    other = Etcd(Authority("other"), tmp_path, 1)
    for way in (
        tunnels.etcd.Members(access(other.servers[1].url), ssh.transport),
        tunnels.etcd.Members(access(other.servers[1].url), None, shell),
    ):
        with pytest.raises(tunnels.etcd.EtcdError) as caught:
            way.list()
        assert caught.value.unproven and not caught.value.passing
        assert "certificate" in str(caught.value)
    assert not other.servers[1].posted
    other.close()


def test_without_the_gateway(members: tunnels.etcd.Members, etcd: Etcd) -> None:
    etcd.servers[2].answer = lambda path, who: (404, b"404 page not found")
    with pytest.raises(tunnels.etcd.EtcdError, match="--enable-grpc-gateway") as caught:
        members.list()
    assert caught.value.unproven


def test_a_lost_connection_is_no_word_on_etcd_and_never_passes(members: tunnels.etcd.Members, ssh: SshServer) -> None:
    ssh.close()
    with pytest.raises(tunnels.etcd.EtcdError, match="fix the connection to the node") as caught:
        members.list()
    assert not caught.value.passing and not caught.value.unproven


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda of: st.lists(of) | st.dictionaries(st.sampled_from(["header", "members", "ID", "member_id", "clientURLs"]), of),
    ).map(lambda value: repr(value).replace("'", '"').encode())
)
def test_any_answer_ends_in_members_or_its_error(members: tunnels.etcd.Members, etcd: Etcd, body: bytes) -> None:
    etcd.servers[2].answer = lambda path, who: (200, body)
    try:
        assert isinstance(members.health(), tunnels.etcd.EtcdHealth)
    except tunnels.etcd.EtcdError as error:
        assert error.unproven


# ---- curl on the node


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_forbidden_forwarding_with_curl(etcd: Etcd, ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess]) -> None:
    ssh.refusal = paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
    ran: list[str] = []

    def run(command: str) -> tuple[bool, str, str]:
        ran.append(command)
        return shell(command)

    etcd.health[3] = (503, b'{"health":"false","reason":"RAFT NO LEADER"}\n')
    members = tunnels.etcd.Members(access(etcd.servers[2].url), ssh.transport, run)
    health = members.health()
    ((member, error),) = health.unhealthy
    assert member.name == "cp3" and "RAFT NO LEADER" in str(error) and error.passing
    assert len(ssh.connections) == 1
    etcd.servers[3].close()
    ((_, error),) = members.health().unhealthy
    assert error.passing and "curl: (7)" in str(error)
    assert all("PRIVATE" not in command for command in ran)


@pytest.mark.parametrize(
    ("words", "passing", "unproven"),
    [
        ("sh: 1: curl: not found", False, True),
        ("bash: line 1: curl: command not found", False, True),
        ("curl: (7) Failed to connect to 127.0.0.1 port 2379 after 0 ms: Couldn't connect to server", True, False),
        ("curl: (28) Operation timed out after 10001 milliseconds with 0 bytes received", True, False),
        ("curl: (35) OpenSSL SSL_connect: Connection reset by peer in connection to 127.0.0.1:2379", True, False),
        ("curl: (35) error:0A000126:SSL routines::unexpected eof while reading", False, True),
        ("curl: (56) OpenSSL SSL_read: error:0A00045C:SSL routines::tlsv13 alert certificate required, errno 0", False, True),
        ("curl: (58) could not load PEM client certificate, OpenSSL error", False, True),
        ("curl: (60) SSL certificate problem: unable to get local issuer certificate", False, True),
        ("curl: (3) URL rejected", False, True),
        ("", False, True),
    ],
)
def test_what_curl_says(access: Callable[..., tunnels.etcd.EtcdAccess], words: str, passing: bool, unproven: bool) -> None:
    with pytest.raises(tunnels.etcd.EtcdError) as caught:
        tunnels.etcd.Members(access("https://127.0.0.1:2379"), None, lambda command: (False, "", words)).list()
    assert (caught.value.passing, caught.value.unproven) == (passing, unproven)
    assert words in str(caught.value)


def test_no_way_at_all(ssh: SshServer, access: Callable[..., tunnels.etcd.EtcdAccess]) -> None:
    ssh.refusal = paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
    with pytest.raises(tunnels.etcd.EtcdError, match=r"AllowTcpForwarding.*or install curl on the node"):
        tunnels.etcd.Members(access("https://127.0.0.1:2379"), ssh.transport).list()
    with pytest.raises(tunnels.etcd.EtcdError, match="no SSH connection to forward through"):
        tunnels.etcd.Members(access("https://127.0.0.1:2379"), None).list()


# ---- flags and files

PEM = b"-----BEGIN CERTIFICATE-----\n"
CA, CERT, KEY = "--etcd-cafile=/ca", "--etcd-certfile=/cert", "--etcd-keyfile=/key"


@pytest.mark.parametrize(
    ("flags", "files", "message"),
    [
        ([], {}, "without --etcd-servers"),
        (["--etcd-servers=https://a:2379"], {}, "without --etcd-cafile"),
        (["--etcd-servers=http://a:2379,https://b:2379"], {}, "without --etcd-cafile"),
        (["--etcd-servers=https://a:2379", CA, CERT], {"/ca": PEM, "/cert": PEM}, "only one of"),
        (["--etcd-servers=https://a:2379", CA, CERT, KEY], {"/ca": PEM, "/cert": PEM}, "/key, which the kube-apiserver's flags name"),
        (
            ["--etcd-servers=https://a:2379", CA],
            {"/ca": b""},
            "/ca, which the kube-apiserver's flags name, cannot be read on the node or is empty",
        ),
    ],
)
def test_a_flag_or_file_that_is_missing(flags: list[str], files: dict[str, bytes], message: str) -> None:
    with pytest.raises(tunnels.etcd.EtcdError, match=message) as caught:
        tunnels.etcd.etcd_access("cp1", ["kube-apiserver", *flags], files.get)
    assert caught.value.unproven and not caught.value.passing


def test_files_that_are_no_certificates() -> None:
    argv = ["kube-apiserver", "--etcd-servers=https://a:2379", CA]
    with pytest.raises(tunnels.etcd.EtcdError, match="cannot be used") as caught:
        tunnels.etcd.Members(tunnels.etcd.etcd_access("cp1", argv, {"/ca": "schlüssel".encode()}.get), None)
    assert caught.value.unproven


def test_all_endpoints_of_all_flags_count_and_no_secret_shows(access: Callable[..., tunnels.etcd.EtcdAccess]) -> None:
    argv = ["kube-apiserver", "--etcd-servers", "http://a:1,http://b:2", "--etcd-servers=http://c:3"]
    assert tunnels.etcd.etcd_access("cp1", argv, {}.get).servers == ("http://a:1", "http://b:2", "http://c:3")
    assert "PRIVATE" not in repr(access("https://a:1"))


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_the_look_at_a_node_brings_the_files_its_apiserver_names(tmp_path: Path) -> None:
    flags = []
    for name in ("cafile", "certfile", "keyfile"):
        (tmp_path / name).write_text(f"{name} of {tmp_path}")
        flags += [f"--etcd-{name}", str(tmp_path / name)] if name == "keyfile" else [f"--etcd-{name}={tmp_path / name}"]
    proc = Proc(tmp_path / "node")
    # One that nobody's static pod has brings nothing.
    proc.add(100, "kube-apiserver", argv=("kube-apiserver", f"--etcd-cafile={tmp_path}/node/proc/uptime"))
    proc.add(200, "kube-apiserver", cgroup=f"/kubepods/pod{STATIC}/x", argv=("kube-apiserver", *flags))
    seen = proc.look()
    assert seen.file(f"{tmp_path}/node/proc/uptime") is None
    assert {name: seen.data(str(tmp_path / name)) for name in ("cafile", "certfile", "keyfile")} == {
        name: f"{name} of {tmp_path}".encode() for name in ("cafile", "certfile", "keyfile")
    }
