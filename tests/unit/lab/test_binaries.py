"""Which Kubernetes runs, and what is refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import LabError, binaries


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBE_VERSION", "KUBE_BIN_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "version"), [("", binaries.DEFAULT_VERSION), ("1.34.2", "1.34.2"), ("v1.34.2", "1.34.2"), ("1.30.14", "1.30.14")]
)
def test_version(monkeypatch: pytest.MonkeyPatch, given: str, version: str) -> None:
    monkeypatch.setenv("KUBE_VERSION", given)
    assert binaries.version() == version


@pytest.mark.parametrize("given", ["1.34", "latest", "2.0.0", "1.34.x", "1.34.2; rm", "vv1.34.2"])
def test_what_is_no_version_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("KUBE_VERSION", given)
    with pytest.raises(LabError, match="is not a version such as"):
        binaries.version()


def programs(folder: Path, versions: dict[str, str]) -> Path:
    """Programs that tell their versions as the real ones do."""
    for name in (*binaries.KUBERNETES, "etcd", "etcdctl"):
        version = versions.get(name, "1.34.2")
        said = {"kubeadm": f"v{version}", "kubectl": f"Client Version: v{version}\\nKustomize Version: v5.7.1"}
        wanted = {"kubeadm": "version -o short", "kubectl": "version --client"}.get(name, "--version")
        program = folder / name
        text = said.get(name, f"Kubernetes v{version}")
        program.write_text(f'#!/bin/sh\n[ "$*" = "{wanted}" ] && printf "{text}\\n"\n')
        program.chmod(0o755)
    return folder


def test_a_given_folder_tells_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_BIN_DIR", str(programs(tmp_path, {})))
    assert binaries.version() == "1.34.2"
    assert binaries.get("1.34.2") == tmp_path
    monkeypatch.setenv("KUBE_VERSION", "v1.34.2")
    assert binaries.version() == "1.34.2"


def test_a_folder_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_BIN_DIR", str(programs(tmp_path, {})))
    monkeypatch.setenv("KUBE_VERSION", "1.36.3")
    with pytest.raises(LabError, match=rf"KUBE_VERSION=1\.36\.3, and KUBE_BIN_DIR={tmp_path} holds 1\.34\.2"):
        binaries.version()


def test_mixed_versions_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_BIN_DIR", str(programs(tmp_path, {"kubectl": "1.33.0"})))
    with pytest.raises(LabError, match=r"mixes versions: kubeadm 1\.34\.2, .*kubectl 1\.33\.0"):
        binaries.version()


def test_what_a_folder_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_BIN_DIR", str(programs(tmp_path, {})))
    (tmp_path / "kubelet").unlink()
    (tmp_path / "etcdctl").unlink()
    (tmp_path / "kubectl").chmod(0o644)
    for ask in (binaries.version, lambda: binaries.get("1.34.2")):
        with pytest.raises(LabError, match=f"KUBE_BIN_DIR={tmp_path} has no kubelet, kubectl, etcdctl$"):
            ask()


def test_a_program_without_a_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBE_BIN_DIR", str(programs(tmp_path, {})))
    (tmp_path / "kubeadm").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(LabError, match="tells no version: 'hello"):
        binaries.version()


def test_an_extra_program_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = []

    def build(wanted: binaries.Extra, binary: Path) -> None:
        built.append((wanted.package, wanted.version))
        binary.touch()

    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    monkeypatch.setattr(binaries, "_build_extra", build)
    first = binaries.extra("metrics-server")
    assert first == binaries.extra("metrics-server") and first.exists()
    # A name that is not the package's own: one word such as updater says too little.
    assert binaries.extra("vpa-updater").name == "vpa-updater"
    assert built == [("sigs.k8s.io/metrics-server/cmd/metrics-server", "v0.9.0"), (f"{binaries.VPA}/pkg/updater", "v1.8.1")]
