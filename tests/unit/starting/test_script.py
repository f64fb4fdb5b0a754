"""The script that asks a node, run here: what it finds, and that it harms nothing."""

from __future__ import annotations

import base64
import http.server
import json
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from roles.engine.certificates import Unread, parse_material
from roles.engine.starting import KEYS, TUNABLES, Needs, StartFacts, Stops, answer, judge, question
from roles.engine.starting.model import Holds, KeyNeed, PathNeed, PortNeed
from tests.unit.api.world import Authority
from tests.unit.starting.samples import certificate


def need(path: Path | str, holds: Holds = Holds.file, named_by: str = "field") -> PathNeed:
    return PathNeed("kubelet", named_by, str(path), holds, Stops.start)


def ask(needs: Needs, shell: str = "sh") -> StartFacts:
    script = question(needs).replace(" sh <<", f" {shell} <<")
    done = subprocess.run([shell, "-s"], input=script, text=True, capture_output=True, check=True)
    assert all(line.startswith("start: ") for line in done.stdout.splitlines()) and done.stderr == ""
    return answer(needs, ["a line of another script", *done.stdout.splitlines()])


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_it_finds(tmp_path: Path, shell: str) -> None:
    (tmp_path / "it's $(touch x) a file").write_text("x")
    (tmp_path / "ca.pem").write_bytes(certificate())
    (tmp_path / "resolv").write_text("# a comment\nnameserver 127.0.0.53\nnameserver 10.0.0.1 # second\n")
    (tmp_path / "current.pem").write_bytes(b"-----BEGIN EC PRIVATE KEY-----\nsecret\n-----END EC PRIVATE KEY-----\n" + certificate())
    (tmp_path / "conf").write_text("users:\n- name: x\n  user:\n    client-certificate: current.pem\n    client-key: /none/key\n")
    inline = base64.b64encode(certificate()).decode()
    (tmp_path / "inline").write_text(f'users: [{{"user": {{"client-certificate-data": "{inline}", "client-key-data": "c2VjcmV0"}}}}]')
    quoted = ' - {"certificate-authority": "/it\'s"}\n  "client-key" : "/a key" # x\n  tokenFile: \'/t,\'\n  tokenFile: \n'
    (tmp_path / "odd").write_text(quoted + "    client-certificate: ca.pem\r\n")
    (tmp_path / "cut.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----BEGIN PRIVATE KEY-----\nsecret\n")
    (tmp_path / "long.pem").write_bytes(certificate() * 40)
    (tmp_path / "dangling").symlink_to("/none")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    paths = (
        need(tmp_path / "it's $(touch x) a file"), need(tmp_path / "ca.pem", Holds.certificates), need(tmp_path / "dangling"),
        need(tmp_path / "resolv", named_by="resolvConf"), need(tmp_path / "conf", Holds.identity), need(tmp_path, Holds.written),
        need(tmp_path / "a/b", Holds.written), need("/dev/null", Holds.device), need("/proc/1/none/x", Holds.written),
        need(tmp_path / "inline", Holds.identity), need(tmp_path / "odd", Holds.identity), need(tmp_path / "cut.pem", Holds.certificates),
        need(tmp_path / "long.pem", Holds.certificates), need("/var", Holds.written),
    )  # fmt: skip
    ports = (PortNeed("kubelet", "port", port, "0.0.0.0"),)
    needs = Needs("n1", paths, ports, TUNABLES, "/none.sock", addresses=("127.0.0.1",), cgroups={"a": "none"})
    found = ask(needs, shell)
    assert found.complete and found.epoch > 1_700_000_000 and found.swap is not None and found.tasks is not None
    kinds = [found.paths[one.path].kind for one in paths[:9]]
    assert kinds == ["file", "file", "none", "file", "file", "directory", "none", "device", "none"]
    assert found.pems[str(tmp_path / "ca.pem")] == certificate() and found.pems[str(tmp_path / "current.pem")] == certificate()
    assert found.names[str(tmp_path / "conf")] == {"client-certificate": str(tmp_path / "current.pem"), "client-key": "/none/key"}
    assert found.pems[str(tmp_path / "inline")] == certificate() and found.pems[str(tmp_path / "conf")] == b""
    named = {
        "certificate-authority": f"{tmp_path}/it",
        "client-key": "/a key",
        "tokenFile": "/t",
        "client-certificate": f"{tmp_path}/ca.pem",
    }
    assert found.names[str(tmp_path / "odd")] == named | {"certificate-authority": "/it"}
    assert found.pems[str(tmp_path / "cut.pem")] == b"-----BEGIN CERTIFICATE-----\nAAAA\n"
    assert 16384 - len(certificate()) < len(found.pems[str(tmp_path / "long.pem")]) <= 16384
    assert found.nameservers[str(tmp_path / "resolv")] == ("127.0.0.53", "10.0.0.1")
    assert found.paths[str(tmp_path / "a/b")].makeable and not found.paths["/proc/1/none/x"].makeable
    assert found.space[str(tmp_path)][0] > 0 and {str(tmp_path / "a/b"), "/var", "/proc/1/none/x"} < {*found.space}
    (listener,) = found.listeners
    assert (listener.port, listener.address, listener.pid) == (port, "127.0.0.1", os.getpid())
    assert found.addresses is not None and "127.0.0.1" in found.addresses
    assert found.cgroups == {"a": False} and "memory" in (found.controllers or ())
    assert set(found.tunables) <= {one.name for one in TUNABLES} and "vm.overcommit_memory" in found.tunables
    assert not (tmp_path / "x").exists() and not Path("x").exists()
    server.close()


def test_the_checkpoints_of_a_kubelet(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "it's").write_bytes(b'{"policyName":"none"}\xff')
    (tmp_path / "long").write_text("x" * 70000)
    names = {str(tmp_path / name): "none" for name in ("empty", "it's", "none", "long")}
    found = ask(Needs("n1", checkpoints=names))
    assert {Path(path).name: text[:22] for path, text in found.checkpoints.items()} == {
        "empty": "", "it's": '{"policyName":"none"}\ufffd', "long": "x" * 22,
    }  # fmt: skip
    assert len(found.checkpoints[str(tmp_path / "long")]) > 65536 and found.cpus and 0 in found.cpus


def test_the_public_half_of_a_key(tmp_path: Path) -> None:
    """What leaves the node of a private key is its public half."""
    pem, key = Authority("ca").issue("a")
    (tmp_path / "a.key").write_bytes(key)
    (tmp_path / "bad.key").write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    keys = tuple(KeyNeed(KEYS[0], "/k.crt", str(tmp_path / name)) for name in ("a.key", "bad.key", "none.key"))
    (tmp_path / "conf").write_text("  client-certificate: a.crt\n  client-key: a.key\n")
    (tmp_path / "both").write_text("  client-certificate: a.key\n  client-key: a.key\n")
    named = ask(Needs("n1", (need(tmp_path / "conf", Holds.identity), need(tmp_path / "both", Holds.identity))))
    assert [*named.keys] == [str(tmp_path / "a.key")]
    found = ask(Needs("n1", keys=keys)).keys
    assert named.keys == {str(tmp_path / "a.key"): found[str(tmp_path / "a.key")]}
    (tmp_path / "conf").unlink()
    assert ask(Needs("n1", (need(tmp_path / "both", Holds.identity),))).keys == {}
    assert {Path(path).name: one.unread for path, one in found.items()} == {"a.key": None, "bad.key": Unread.locked}
    assert found[str(tmp_path / "a.key")].public_keys == {parse_material("/k.crt", pem).certificates[0].public_key}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a certificate of the Authority `CA`."""
    pem, key = CA.issue("api", "127.0.0.1")
    (tmp_path / "served").write_bytes(pem + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


CA = Authority("ca")


def test_the_api_server_of_a_kubeconfig(tmp_path: Path, api: int) -> None:
    """Any answer will do, if the server has the certificate: this one does not know what it is asked."""
    conf = tmp_path / "conf"
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    own, other = (base64.b64encode(one.pem).decode() for one in (CA, Authority("other")))
    with socket.create_server(("127.0.0.1", 0)) as listens:
        free = listens.getsockname()[1]

    def asked(port: int, *more: str) -> tuple[int, str] | None:
        conf.write_text("\n".join(("clusters:", "- cluster:", f"    server: https://127.0.0.1:{port}", *more)) + "\n")
        return ask(Needs("n1", reaches=str(conf))).api

    url = f"https://127.0.0.1:{api}"
    assert asked(api, f"    certificate-authority-data: {own}") == asked(api, '    certificate-authority: "ca.crt"') == (0, url)
    assert asked(api, f"    certificate-authority-data: {other}") == (60, url)
    assert asked(free, "    certificate-authority: ca.crt") == (7, f"https://127.0.0.1:{free}")
    for odd in (
        "    server: https://127.0.0.1:1",
        "    proxy-url: http://127.0.0.1:1",
        "    insecure-skip-tls-verify: true",
        "    certificate-authority: /a",
    ):
        assert asked(api, "    certificate-authority: ca.crt", odd) is None
    conf.write_text(json.dumps({"clusters": [{"cluster": {"server": url, "certificate-authority-data": own}}]}, indent=1))
    assert ask(Needs("n1", reaches=str(conf))).api == (0, url)
    assert asked(api) is None and ask(Needs("n1", reaches=str(tmp_path / "none"))).api is None


def test_a_node_cannot_break_the_answer(tmp_path: Path) -> None:
    """Records that are cut, odd or forged make unknown facts, and no obstacle."""
    needs = Needs("n1", (need("/x"),), tunables=TUNABLES)
    for line in (
        "path",
        "path 99 none -",
        "path x",
        "tunable 0 y r",
        "pem 0 ***",
        "listens 1 zz 3 =",
        "space 0 a b c",
        "__init__ x",
        "_put a b c",
    ):
        assert judge("n1", needs, answer(needs, [f"start: {line}"])) == []
    assert not answer(needs, []).complete
