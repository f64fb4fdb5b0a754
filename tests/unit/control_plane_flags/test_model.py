"""The data of control-plane flags, and what is refused before any node is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.control_plane_flags import read_flags
from roles.control_plane_flags.dangers import DANGERS, HARMLESS, MUST_BE_EQUAL, NAMES_PUBLIC, danger
from roles.control_plane_flags.listed_flags import alike, parse_flags
from roles.control_plane_flags.model import DesiredFile
from roles.control_plane_flags.reserved import reserved
from roles.engine.transaction import Refusal

PATH = "/etc/kubernetes/policy.yaml"


def read(**data: Any) -> Any:
    return read_flags("cp1", data.get)


def test_flags_and_files_are_read() -> None:
    found = read(
        control_plane_flags={"scheduler": {"v": 4, "--leader_elect": True, "config": "absent"}, "kube-apiserver": {"issuer": ["a", "b"]}},
        control_plane_files={PATH: {"content": "x\n", "mode": "0640", "owner": "0:65534"}, "/etc/kubernetes/old.yaml": "absent"},
    )
    assert found.control_plane_flags == {
        "kube-scheduler": {"v": ("4",), "leader-elect": ("true",), "config": None},
        "kube-apiserver": {"issuer": ("a", "b")},
    }
    file = DesiredFile(content=b"x\n", mode=0o640, owner="0:65534")
    assert found.control_plane_files == {PATH: file, "/etc/kubernetes/old.yaml": None}
    assert read(control_plane_flags="kube-scheduler:v=4").of("kube-scheduler") == {"v": ("4",)}
    assert read() is None


def test_content_from_a_file_here(tmp_path: Path) -> None:
    here = tmp_path / "policy.yaml"
    here.write_bytes(b"a\r\n\xff")
    assert read(control_plane_files={PATH: {"file": str(here)}}).control_plane_files[PATH].content == b"a\r\n\xff"
    with pytest.raises(Refusal, match="cannot be read: No such file"):
        read(control_plane_files={PATH: {"file": str(tmp_path / "none")}})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"etcd": {"v": 1}}, "daytwo does not change etcd's flags"),
        ({"kube-proxy": {"v": 1}}, "'kube-proxy' is not one of"),
        ({"scheduler": {"feature-gates": "A=true"}}, r"deploys/feature_gates\.py"),
        ({"scheduler": {"write-config-to": "/x"}}, "writes its configuration and ends"),
        ({"scheduler": {"a b": "x"}}, "'a b' is not the name of a flag"),
        ({"scheduler": {"a": "x\ny"}}, "not printable"),
        ({"scheduler": {"a": "$(HOME)"}}, r"the kubelet would replace \$\(\.\.\.\)"),
        ({"scheduler": {"a": None}}, "`absent` to remove the flag"),
        ({"scheduler": {"a": []}}, "empty list"),
        ({"scheduler": {"a": {"b": 1}}}, "is not a value of a flag"),
        ("scheduler", "write COMPONENT:FLAG=VALUE"),
    ],
)
def test_flags_that_are_refused(flags: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        read(control_plane_flags=flags)


@pytest.mark.parametrize(
    ("path", "file", "words"),
    [
        ("/etc/kubernetes/manifests/x.yaml", {"content": ""}, "static pod"),
        ("/etc/kubernetes/pki/ca.crt", {"content": ""}, "kubeadm and its renewal"),
        ("/etc/kubernetes/scheduler.conf", {"content": ""}, "kubeconfigs"),
        ("/etc/kubernetes/ssl/ca.key", {"content": ""}, "kubeadm and its renewal"),
        ("/etc/kubernetes/kubelet-config.yaml", {"content": ""}, "kubelet, kubeadm and other tools"),
        ("/etc/kubernetes/kubelet.env", {"content": ""}, "kubelet, kubeadm and other tools"),
        ("/etc/shadow", {"content": ""}, "belongs to other programs"),
        ("/etc/sudoers.d/x", {"content": ""}, "starts or trusts"),
        ("/etc/systemd/system/kubelet.service", {"content": ""}, "starts or trusts"),
        ("/etc/containerd/config.toml", {"content": ""}, "belongs to other programs"),
        ("/usr/bin/kubelet", {"content": ""}, "programs of the node"),
        ("/opt/cni/bin/bridge", {"content": ""}, "programs of the node"),
        ("/boot/grub/grub.cfg", {"content": ""}, "boots from it"),
        ("/root/.ssh/authorized_keys", {"content": ""}, "belongs to users"),
        ("/srv/git/.ssh/authorized_keys", {"content": ""}, "belongs to users"),
        ("/var/lib/etcd/x", {"content": ""}, "belongs to other programs"),
        ("/var/lib/kubelet/config.yaml", {"content": ""}, "belongs to other programs"),
        ("/tmp/x", {"content": ""}, "belongs to other programs"),
        ("/etc/kubernetes/../x", {"content": ""}, "the whole path"),
        ("policy.yaml", {"content": ""}, "the whole path"),
        (PATH, {"content": "", "file": "x"}, "write {content: TEXT}"),
        (PATH, {"content": "", "mode": 600, "own": "x"}, "write {content: TEXT}"),
        (PATH, {"content": "", "mode": "rw"}, "three octal digits"),
        (PATH, {"content": "", "mode": 0o640}, "three octal digits"),
        (PATH, {"content": "", "mode": 640}, "three octal digits"),
        (PATH, {"content": "", "owner": "root"}, "UID:GID"),
        (PATH, {"content": "", "owner": "00:0"}, "UID:GID"),
        (PATH, {"content": 7}, "content is not text"),
        (PATH, {"content": "", "component": "etcd"}, "etcd"),
        (PATH, {"content": "", "secret": "yes"}, "write true or false"),
        (PATH, {"content": "x" * 600_000}, "writes up to"),
    ],
)
def test_files_that_are_refused(path: str, file: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        read(control_plane_files={path: file})


@pytest.mark.parametrize(
    ("component", "flag", "before", "after", "dangerous"),
    [
        ("kube-apiserver", "anonymous-auth", None, ("false",), True),
        ("kube-apiserver", "authorization-mode", ("Node,RBAC",), ("RBAC",), True),
        ("kube-apiserver", "etcd-servers", ("a",), ("b",), True),
        ("kube-apiserver", "tls-min-version", None, ("VersionTLS13",), True),
        ("kube-apiserver", "service-account-issuer", ("a",), ("b", "a"), True),
        ("kube-controller-manager", "cluster-cidr", ("a",), ("b",), True),
        ("kube-controller-manager", "leader-elect", ("true",), None, True),
        ("kube-apiserver", "audit-policy-file", None, ("/x",), False),
        ("kube-apiserver", "audit-log-mode", None, ("blocking-strict",), True),
        ("kube-apiserver", "egress-selector-config-file", None, ("/x",), True),
        ("kube-controller-manager", "horizontal-pod-autoscaler-downscale-stabilization", None, ("2m",), False),
        ("kube-scheduler", "config", None, ("/x",), False),
        # A plugin that is on, and then is not.
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction",), ("NodeRestriction,AlwaysPullImages",), True),
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction,AlwaysPullImages",), ("NodeRestriction,PodSecurity",), True),
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction",), ("NodeRestriction,PodSecurity",), False),
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction,A",), ("A",), True),
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction",), None, True),
        ("kube-apiserver", "disable-admission-plugins", None, ("ResourceQuota",), True),
        ("kube-apiserver", "disable-admission-plugins", ("ResourceQuota",), None, False),
        ("kube-apiserver", "enable-admission-plugins", ("NodeRestriction",), ("NodeRestriction,AlwaysDeny",), True),
        ("kube-apiserver", "enable-admission-plugins", None, ("EventRateLimit",), True),
        ("kube-apiserver", "request-timeout", None, ("1ms",), True),
        ("kube-apiserver", "shutdown-delay-duration", None, ("1h",), True),
        ("kube-apiserver", "goaway-chance", None, ("0.02",), True),
        ("kube-apiserver", "emulated-version", None, ("1.31",), True),
        ("kube-controller-manager", "terminated-pod-gc-threshold", None, ("1",), True),
        ("kube-controller-manager", "enable-garbage-collector", None, ("false",), True),
        ("kube-controller-manager", "concurrent-service-endpoint-syncs", None, ("0",), True),
        ("kube-controller-manager", "cloud-provider", None, ("external",), True),
        ("kube-scheduler", "some-later-flag", None, ("x",), True),
        ("kube-scheduler", "v", None, ("4",), False),
        ("kube-scheduler", "v", None, ("8",), True),
        ("kube-controller-manager", "v", ("9",), ("8",), False),
        ("kube-apiserver", "vmodule", None, ("round_trippers=9",), True),
        ("kube-apiserver", "event-ttl", None, ("2h",), False),
        ("kube-apiserver", "event-ttl", None, ("10000h",), True),
        ("kube-controller-manager", "kube-api-qps", None, ("15",), False),
        ("kube-controller-manager", "kube-api-qps", None, ("0.001",), True),
        ("kube-scheduler", "kube-api-burst", ("100",), ("1",), True),
        ("kube-scheduler", "kube-api-qps", ("1",), ("5",), False),
        ("kube-controller-manager", "node-monitor-period", None, ("1h",), True),
        ("kube-controller-manager", "horizontal-pod-autoscaler-sync-period", None, ("30s",), False),
        ("kube-controller-manager", "horizontal-pod-autoscaler-sync-period", None, ("1000h",), True),
        ("kube-controller-manager", "horizontal-pod-autoscaler-tolerance", None, ("100",), True),
    ],
)
def test_which_changes_need_consent(component: str, flag: str, before: Any, after: Any, dangerous: bool) -> None:
    assert (danger(component, flag, before, after) is not None) is dangerous


def test_no_flag_is_both_harmless_and_dangerous() -> None:
    words = [flag.replace(".*", "x") for one in DANGERS for flag in one.flag.split("|") if "(" not in flag]
    assert len(words) > 40 and [flag for flag in words if HARMLESS.fullmatch(flag)] == []


@pytest.mark.parametrize(
    "path",
    ["/etc/kubernetes/a.yaml", "/etc/kubernetes/daytwo/k.key", "/var/log/kubernetes/audit.log", "/srv/audit/a.log", "/var/run/kubernetes/"],
)
def test_paths_that_components_may_have(path: str) -> None:
    assert reserved(path) == ""


@pytest.mark.parametrize("path", ["/etc/kubernetes/pki/ca.crt", "//etc/shadow", "/etc/kubernetes/../shadow", "/usr/", "/boot/x/../y"])
def test_paths_that_no_component_may_have(path: str) -> None:
    assert reserved(path)


def test_which_flags_name_secrets_and_which_are_the_same_on_all() -> None:
    secret = [
        "encryption-provider-config", "token-auth-file", "tls-private-key-file", "authentication-token-webhook-config-file", "etcd-keyfile",
        "kubelet-client-key", "proxy-client-key-file", "service-account-signing-key-file", "service-account-key-file", "tls-sni-cert-key",
        "service-account-private-key-file", "cluster-signing-key-file", "cluster-signing-kubelet-serving-key-file", "kubeconfig",
        "authorization-webhook-config-file", "audit-webhook-config-file", "egress-selector-config-file", "some-later-flag",
    ]  # fmt: skip
    public = [
        "config", "audit-policy-file", "admission-control-config-file", "client-ca-file", "etcd-cafile", "etcd-certfile", "tls-cert-file",
        "root-ca-file", "requestheader-client-ca-file", "kubelet-client-certificate", "cluster-signing-cert-file", "proxy-client-cert-file",
        "oidc-ca-file",
    ]  # fmt: skip
    assert [name for name in secret if NAMES_PUBLIC.fullmatch(name)] == []
    assert [name for name in public if not NAMES_PUBLIC.fullmatch(name)] == []
    assert MUST_BE_EQUAL.fullmatch("service-account-issuer") and not MUST_BE_EQUAL.fullmatch("v")


HELP = """
      --config string            The path to the configuration file.
  -v, --v Level                              number for the log level verbosity
      --profiling                     DEPRECATED: enable profiling. This parameter is ignored if a config file is specified. (default true)
      --service-account-issuer stringArray                Identifier
      --tls-cipher-suites strings              Comma-separated list
      --vmodule pattern=N,...                comma-separated list
"""


def test_what_a_binary_lists() -> None:
    found = parse_flags(HELP)
    assert {name: flag.kind for name, flag in found.items()} == {
        "config": "string",
        "v": "Level",
        "profiling": "bool",
        "service-account-issuer": "stringArray",
        "tls-cipher-suites": "strings",
        "vmodule": "pattern=N,...",
    }
    assert [name for name, flag in found.items() if flag.several] == ["service-account-issuer", "tls-cipher-suites"]
    assert [name for name, flag in found.items() if flag.commas] == ["tls-cipher-suites"]
    assert found["profiling"].deprecated == "DEPRECATED: enable profiling"
    assert alike("tls-cipher-suite", found) == ["tls-cipher-suites"]
