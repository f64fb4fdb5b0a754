"""The command lines and files of a shadow's programs, and its certificates."""

from __future__ import annotations

import shlex
import ssl

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.x509 import load_pem_x509_certificate

from roles.engine.api.kubeconfig import tls_context
from roles.engine.editing import FormatError
from roles.engine.shadow.credentials import new_credentials
from roles.engine.shadow.filling import profiles_of
from roles.engine.shadow.programs import Ports, extenders, programs, scheduler_configuration
from roles.engine.shadow.unit import command, ports

OWN = new_credentials()
CONFIGURATION = b"""apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
leaderElection:
  leaderElect: true
profiles:
- schedulerName: packed # and no other
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def test_nothing_is_open_without_the_shadows_own_certificate() -> None:
    made = programs("/f", Ports(1, 2, 3, 4), OWN)
    etcd, api, scheduler = (made.words[name] for name in ("etcd", "kube-apiserver", "kube-scheduler"))
    assert {"--client-cert-auth", "--peer-client-cert-auth", "--trusted-ca-file=/f/ca.crt", "--peer-trusted-ca-file=/f/ca.crt"} <= {*etcd}
    # Nobody but the shadow's own client; so a delegated question about someone else is denied too.
    assert {"--anonymous-auth=false", "--authorization-mode=AlwaysDeny", "--client-ca-file=/f/ca.crt"} <= {*api} and not any(
        "token-auth" in word for word in api
    )
    listens = [word for words in made.words.values() for word in words if "listen" in word or "bind-address" in word]
    assert len(listens) == 4 and all("127.0.0.1" in word for word in listens)
    assert not any(b"PRIVATE" in word.encode() for words in made.words.values() for word in words)
    assert {"--bind-address=127.0.0.1", "--secure-port=4"} <= {*scheduler}


def test_of_the_clusters_own_flags_only_what_decides_is_kept() -> None:
    argv = ["kube-scheduler", "--feature-gates=A=true", "--kubeconfig=/etc/kubernetes/scheduler.conf", "--tls-cert-file=/x", "--v=9"]
    words = programs("/f", Ports(1, 2, 3, 4), OWN, ["kube-apiserver", "--etcd-keyfile=/own", "--feature-gates=B=false"], argv).words
    assert "--feature-gates=A=true" in words["kube-scheduler"] and "--feature-gates=B=false" in words["kube-apiserver"]
    assert not any(
        "/etc/kubernetes" in word or "/own" in word or word in ("--v=9", "--tls-cert-file=/x") for each in words.values() for word in each
    )


def test_the_clusters_own_configuration_of_the_scheduler_with_another_api() -> None:
    text = scheduler_configuration(CONFIGURATION, "/f/kubeconfig").decode()
    assert "schedulerName: packed # and no other" in text and "MostAllocated" in text
    assert "kubeconfig: /f/kubeconfig" in text and "leaderElect: false" in text and "/etc/kubernetes" not in text
    assert profiles_of({}) == ["default-scheduler"] and profiles_of({"profiles": [{"schedulerName": "packed"}, {}]}) == [
        "packed",
        "default-scheduler",
    ]
    with pytest.raises(FormatError):
        scheduler_configuration(b"kind: Pod\n", "/f/kubeconfig")


def test_extenders_are_seen() -> None:
    assert not extenders(b"") and not extenders(CONFIGURATION)
    assert extenders(CONFIGURATION + b"extenders:\n- urlPrefix: http://10.0.0.1\n")


def test_each_shadow_has_an_authority_of_its_own() -> None:
    context = tls_context(OWN.as_client)
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    for pair in (OWN.server, OWN.client):
        load_pem_x509_certificate(pair.certificate).verify_directly_issued_by(load_pem_x509_certificate(OWN.authority))
    with pytest.raises(InvalidSignature):
        load_pem_x509_certificate(OWN.client.certificate).verify_directly_issued_by(load_pem_x509_certificate(new_credentials().authority))
    assert "PRIVATE" not in repr(OWN)


def test_the_unit_ends_by_itself_and_reaches_no_other_machine() -> None:
    words = shlex.split(command("daytwo-shadow-1", 1 << 30))
    assert {"--collect", "--property=IPAddressDeny=any", "--property=RuntimeMaxSec=3600", "--property=MemoryMax=1073741824"} <= {*words}
    assert "$" in words[-1] and "$" not in words[-1].replace("$$", "")  # systemd would read a single one as a variable


def test_enough_free_ports() -> None:
    assert ports([5, 6, 7, 8, 9]) == Ports(5, 6, 7, 8)
    with pytest.raises(ValueError, match="no free ports"):
        ports([5, 6, 7])
