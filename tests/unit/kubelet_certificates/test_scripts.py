"""What nodes run: the scripts that read certificates and addresses, by the shells that nodes have."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.engine.certificates import Unread
from roles.engine.node.named_files import parse_authorities, parse_files
from roles.engine.scripts import templates
from roles.kubelet_certificates.facts import parse_names
from tests.unit.api.world import Authority

ADDRESSES = templates().get_template("addresses.sh.j2").render()


def certificates(*paths: str, folders: tuple[str, ...] = (), kubeconfigs: tuple[str, ...] = ()) -> str:
    template = templates().get_template("certificates.sh.j2")
    return template.render(paths=paths, folders=folders, keys=True, kubeconfigs=kubeconfigs, most_bytes=65536, most_files=20)


@pytest.mark.parametrize("shell", [shell for shell in ("dash", "bash") if shutil.which(shell)])
def test_only_certificates_leave_a_node(tmp_path: Path, shell: str) -> None:
    authority = Authority("ca")
    certificate, key = authority.issue("node", "192.0.2.11")
    encoded, secret = base64.b64encode(certificate).decode(), base64.b64encode(key).decode()
    user = {"client-certificate-data": encoded, "client-key-data": secret}
    files = {
        "current.pem": key + certificate,
        "chain.crt": certificate + authority.pem,
        "json.conf": json.dumps({"users": [{"user": user}]}, indent=1).encode(),
        "yaml.conf": f"users:\n- user:\n    client-certificate-data: {encoded}\n    client-key-data: {secret}\n".encode(),
        "path.conf": b"    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n",
        "it's.crt": certificate,
        "empty": b"",
        "member.pem": certificate,
        "member-key.pem": certificate,
        "half.crt": certificate.rpartition(b"-----END")[0] + key,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    named = [name for name in files if not name.startswith("member")]
    script = certificates(*(str(tmp_path / name) for name in (*named, "none")), str(tmp_path), folders=(str(tmp_path),))
    told = subprocess.run([shell, "-s"], input=script, capture_output=True, text=True, check=True)
    found = {
        Path(path).name: [one.common_name for one in listed.certificates]
        for path, listed in parse_files(told.stdout.splitlines()).items()
        if listed.certificates
    }
    one = ["node"]
    assert found == {"current.pem": one, "chain.crt": [*one, "ca"], "json.conf": one, "yaml.conf": one, "it's.crt": one, "member.pem": one}
    decoded = b"".join(base64.b64decode(word.rstrip("-=") + "==") for word in told.stdout.split() if len(word) > 40)
    assert b"PRIVATE" not in decoded and key[40:80] not in decoded and told.stderr == ""


def test_a_key_that_a_node_cannot_read_is_not_known(tmp_path: Path) -> None:
    """Without openssl there is no public half of a private key, which is not the same as a file without keys."""
    certificate, key = Authority("ca").issue("node", "192.0.2.11")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("awk", "grep", "sed", "head", "base64"):
        (tools / name).symlink_to(str(shutil.which(name)))
    files = {"both.pem": certificate + key, "a.key": key, "damaged.key": key[:60] + b"\n-----END PRIVATE KEY-----\n", "empty": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    script = certificates(*(str(tmp_path / name) for name in (*files, "none")))

    def unread(script: str) -> dict[str, Unread | None]:
        told = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, text=True, check=True)
        return {Path(path).name: one.unread for path, one in parse_files(told.stdout.splitlines()).items()}

    usual = {"both.pem": None, "a.key": None, "damaged.key": Unread.locked, "empty": Unread.other, "none": Unread.gone}
    assert unread(script) == usual
    lacking = script.replace("PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", f"PATH={tools}")
    assert unread(lacking) == usual | dict.fromkeys(("both.pem", "a.key", "damaged.key"), Unread.no_openssl)


def test_whom_a_kubeconfig_trusts(tmp_path: Path) -> None:
    authority = Authority("ca")
    encoded = base64.b64encode(authority.pem).decode()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    files = {
        "within.conf": f"clusters:\n- cluster:\n    certificate-authority-data: {encoded}\n    server: https://a\n",
        "json.conf": json.dumps({"clusters": [{"cluster": {"certificate-authority-data": encoded}}]}),
        "beside.conf": "clusters:\n- cluster:\n    certificate-authority: 'ca.crt'\n    server: https://a\n",
        "named.conf": f"clusters:\n- cluster: {{certificate-authority: {tmp_path}/ca.crt, server: https://a}}\n",
        "open.conf": "clusters:\n- cluster:\n    insecure-skip-tls-verify: true\n    server: https://a\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = certificates(kubeconfigs=tuple(str(tmp_path / name) for name in (*files, "none")))
    told = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    found = {Path(path).name: one for path, one in parse_authorities(told.stdout.splitlines()).items()}
    assert {name: one.unread for name, one in found.items()} == {
        **dict.fromkeys(files), "open.conf": Unread.no_authority, "none": Unread.gone,
    }  # fmt: skip
    assert {name for name, one in found.items() if [each.common_name for each in one.certificates] == ["ca"]} == {*files} - {"open.conf"}


@pytest.mark.skipif(shutil.which("ip") is None, reason="the program ip is not installed")
def test_the_addresses_of_this_machine() -> None:
    told = subprocess.run(["sh", "-s"], input=ADDRESSES, capture_output=True, text=True, check=True)
    found = parse_names("here", told.stdout.splitlines())
    assert found.hostname == Path("/proc/sys/kernel/hostname").read_text().strip()
    assert "127.0.0.1" not in found.addresses
