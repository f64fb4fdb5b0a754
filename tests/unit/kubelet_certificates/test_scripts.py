"""What nodes run: the scripts that read certificates and addresses, by the shells that nodes have."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.engine.node import parse_files
from roles.engine.scripts import templates
from roles.kubelet_certificates.facts import parse_names
from tests.unit.api.world import Authority

ADDRESSES = templates().get_template("addresses.sh.j2").render()


def certificates(*paths: str, folders: tuple[str, ...] = ()) -> str:
    return templates().get_template("certificates.sh.j2").render(paths=paths, folders=folders, keys=True, most_bytes=65536, most_files=20)


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


@pytest.mark.skipif(shutil.which("ip") is None, reason="the program ip is not installed")
def test_the_addresses_of_this_machine() -> None:
    told = subprocess.run(["sh", "-s"], input=ADDRESSES, capture_output=True, text=True, check=True)
    found = parse_names("here", told.stdout.splitlines())
    assert found.hostname == Path("/proc/sys/kernel/hostname").read_text().strip()
    assert "127.0.0.1" not in found.addresses


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (make lint installs it)")
@pytest.mark.parametrize("script", [ADDRESSES, certificates("/a b", folders=("/c",))])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    done = subprocess.run(["shellcheck", "--shell=sh", "-"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
