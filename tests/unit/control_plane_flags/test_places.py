"""Paths that flags name: in the container's own layer, in a mount that cannot be written, or on the node."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.named_paths import WRITTEN_PATHS
from tests.unit.control_plane_flags.world import API, judged, seen
from tests.unit.node import node

LOG = "/var/log/kubernetes/audit/audit.log"
POLICY = "/etc/kubernetes/audit-policy.yaml"
PLACED: dict[str, Any] = {POLICY: {"content": "x"}}
AUDITED: dict[str, Any] = {
    "control_plane_flags": {API: {"audit-log-path": LOG, "audit-policy-file": POLICY}},
    "control_plane_files": PLACED,
}


def mounted(*mounts: str, volumes: str = "") -> bytes:
    """The API server's manifest with mounts (flow YAML) and volumes."""
    text = node.manifest(API, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction").decode()
    text = text.replace("    name: kube-apiserver\n", f"    name: kube-apiserver\n    volumeMounts: [{', '.join(mounts)}]\n", 1)
    return (text + f"  volumes: [{volumes}]\n").encode()


def told(manifest: bytes | None = None, data: dict[str, Any] = AUDITED, **more: Any) -> tuple[list[str], list[str]]:
    looked = seen(dict.fromkeys(data.get("control_plane_files") or ()), {f"{API}.yaml": manifest} if manifest else None)
    made = judged({**data, **more}, looked)
    return [str(one) for one in made.refusals], list(made.warnings)


DIRECTORY = "{name: logs, hostPath: {path: /var/log/kubernetes, type: DirectoryOrCreate}}"


def test_a_log_in_the_container_needs_consent() -> None:
    (said,), _ = told()
    assert "/var/log/kubernetes/audit/ is no mount of the pod: the log stays in the container, and is lost when it restarts" in said
    assert 'use "-", or a directory that is mounted: this pod has none' in said and "--data allow_flags=audit-log-path" in said
    refusals, warnings = told(allow_flags="audit-log-path")
    assert refusals == [] and any("is no mount of the pod" in one and "(allowed by allow_flags)" in one for one in warnings)


def test_a_directory_of_the_node_is_as_it_should_be() -> None:
    assert told(mounted("{name: logs, mountPath: /var/log/kubernetes}", volumes=DIRECTORY)) == ([], [])
    assert told(None, {**AUDITED, "control_plane_flags": {API: {"audit-log-path": "-", "audit-policy-file": POLICY}}}) == ([], [])


@pytest.mark.parametrize("flag", ["audit-log-path", "audit-webhook-config-file"])
def test_an_audit_log_without_a_policy_is_refused(flag: str) -> None:
    data = {"control_plane_flags": {API: {flag: POLICY}}, "control_plane_files": PLACED}
    refusals, _ = told(None, data, allow_flags=flag)
    assert any("without audit-policy-file no event is written" in one and "set audit-policy-file too" in one for one in refusals)


def test_the_directories_that_can_be_written_are_named() -> None:
    (said,), _ = told(
        mounted(
            "{name: logs, mountPath: /srv/logs}",
            "{name: pki, mountPath: /pki, readOnly: true}",
            volumes=f"{DIRECTORY}, {{name: pki, hostPath: {{path: /pki}}}}",
        )
    )
    assert "a directory that is mounted: /srv/logs;" in said


@pytest.mark.parametrize(
    ("mount", "volume", "words"),
    [
        ("{name: l, mountPath: /var/log, readOnly: true}", "{name: l, hostPath: {path: /var/log}}", "is mounted read-only"),
        ("{name: l, mountPath: /var/log}", "{name: l, configMap: {name: x}}", "is mounted read-only"),
        ("{name: l, mountPath: /var/log}", "{name: l, emptyDir: {}}", "is a volume (emptyDir): the log is lost when the pod is recreated"),
        (f"{{name: l, mountPath: {LOG}}}", f"{{name: l, hostPath: {{path: {LOG}, type: FileOrCreate}}}}", "cannot rotate the log"),
    ],
)
def test_a_mount_that_does_not_keep_the_log(mount: str, volume: str, words: str) -> None:
    manifest = mounted(mount, volumes=volume)
    (said,), _ = told(manifest)
    assert words in said
    # Consent does not help a component that would not start.
    assert bool(told(manifest, allow_flags="audit-log-path")[0]) == ("read-only" in words)


def test_a_file_that_is_read_and_not_mounted() -> None:
    flags = {"control_plane_flags": {API: {"audit-policy-file": POLICY}}}
    (said,), _ = told(None, flags)
    assert f"no mount of the pod has {POLICY}" in said and "control_plane_files" in said
    assert told(None, {**flags, "control_plane_files": PLACED})[0] == []


@pytest.mark.parametrize("row", [one for one in WRITTEN_PATHS if API in one.programs])
def test_every_path_that_an_api_server_writes(row: Any) -> None:
    refusals, _ = told(None, {"control_plane_flags": {API: {row.flag: "/srv/somewhere/x"}}})
    assert any("is no mount of the pod" in one and row.what in one for one in refusals)
