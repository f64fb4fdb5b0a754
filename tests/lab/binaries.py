"""Kubernetes and etcd binaries of one version: a folder the user gives, the cache, the official release, or Go modules."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.tools import CACHE, LabError, locked, long_step, need_packages, remove_tree, run, say

# The newest stable Kubernetes that Go's module proxy has; KUBE_VERSION chooses another.
DEFAULT_VERSION = "1.36.3"
# Beside it for what differs by version: gates that are off there, no dependencies between them; a patch whose modules can all be had.
OLDER_VERSION = "1.32.5"
KUBERNETES = ("kubeadm", "kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
RELEASES = "https://dl.k8s.io/release"


@dataclass(frozen=True)
class Extra:
    """A program beside Kubernetes that some tests run in the cluster. It is built from its Go module, when a test first wants it."""

    module: str
    version: str
    package: str
    # Where its version is stamped; the release's own Makefile says so. "": its source has it.
    stamped: str = ""


VPA = "k8s.io/autoscaler/vertical-pod-autoscaler"
VPA_VERSION = "v1.8.1"
EXTRAS = {
    "metrics-server": Extra(
        "sigs.k8s.io/metrics-server", "v0.9.0", "sigs.k8s.io/metrics-server/cmd/metrics-server", "k8s.io/client-go/pkg"
    ),
    **{f"vpa-{name}": Extra(VPA, VPA_VERSION, f"{VPA}/pkg/{name}") for name in ("recommender", "updater", "admission-controller")},
}
# A machine without a way out says so at once; one with a slow way is not waited for.
REACH_SECONDS = 3
# Debian's Go may be too old to fetch toolchains by itself; from this one on it can.
GO_WITH_TOOLCHAINS = (1, 21)


def architecture() -> str:
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = os.uname().machine
    if machine not in known:
        raise LabError(f"the lab knows no Kubernetes binaries for {machine}; it runs on {' and '.join(known)}")
    return known[machine]


def version() -> str:
    """The version to run, without the v: KUBE_VERSION's, that of the binaries in KUBE_BIN_DIR, or the default."""
    wanted = os.environ.get("KUBE_VERSION", "").removeprefix("v")
    if wanted and not re.fullmatch(r"1\.\d+\.\d+", wanted):
        raise LabError(f"KUBE_VERSION={wanted!r} is not a version such as {DEFAULT_VERSION}")
    if not os.environ.get("KUBE_BIN_DIR"):
        return wanted or DEFAULT_VERSION
    folder = _given_folder()
    found = {name: _told_version(folder / name) for name in KUBERNETES}
    if len({*found.values()}) > 1:
        raise LabError(f"{folder} mixes versions: {', '.join(f'{name} {told}' for name, told in found.items())}")
    told = found["kubeadm"]
    if wanted and wanted != told:
        raise LabError(f"KUBE_VERSION={wanted}, and KUBE_BIN_DIR={folder} holds {told}; leave one of them out")
    return told


def _given_folder() -> Path:
    folder = Path(os.environ["KUBE_BIN_DIR"]).resolve()
    missing = [name for name in (*KUBERNETES, "etcd", "etcdctl") if not os.access(folder / name, os.X_OK)]
    if missing:
        raise LabError(f"KUBE_BIN_DIR={folder} has no {', '.join(missing)}")
    return folder


def _told_version(binary: Path) -> str:
    question = {"kubeadm": ["version", "-o", "short"], "kubectl": ["version", "--client"]}.get(binary.name, ["--version"])
    told = run(binary, *question).stdout
    found = re.search(r"v(1\.\d+\.\d+\S*)", told)
    if not found:
        raise LabError(f"`{binary} {' '.join(question)}` tells no version: {told[:80]!r}")
    return found.group(1)


def get(version: str) -> Path:
    """A folder with the six Kubernetes binaries, etcd and etcdctl of `version`."""
    if os.environ.get("KUBE_BIN_DIR"):
        return _given_folder()
    folder = CACHE / "kubernetes" / f"v{version}-{architecture()}"
    if (folder / "complete").exists():
        return folder
    with locked(CACHE / "lock", "another process makes Kubernetes' binaries; waiting for it"):
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            if not _download(version, folder):
                _build(version, folder)
            (folder / "complete").touch()
    return folder


def extra(name: str) -> Path:
    """The binary of one of EXTRAS."""
    wanted = EXTRAS[name]
    folder = CACHE / "extras" / f"{name}-{wanted.version}-{architecture()}"
    with locked(CACHE / "lock", f"another process makes binaries; {name} waits for it"):
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            _build_extra(wanted, folder / name)
            (folder / "complete").touch()
    return folder / name


def source_of(name: str) -> Path:
    """The folder with the files of an extra's Go module, such as its CRDs."""
    return _module(_go(), EXTRAS[name].module, EXTRAS[name].version)


def _build_extra(wanted: Extra, binary: Path) -> None:
    go = _go()
    module = _module(go, wanted.module, wanted.version)
    with long_step(f"building {wanted.package} {wanted.version} from its Go module (once)"):
        _go_build(
            go,
            binary.parent,
            f"require {wanted.module} {wanted.version}\n",
            [wanted.package],
            go_line=_go_line(module),
            ldflags="-s -w" + (f" -X {wanted.stamped}/version.gitVersion={wanted.version}" if wanted.stamped else ""),
        )
    (binary.parent / wanted.package.rsplit("/", 1)[1]).rename(binary)


def version_of(source: Path, requires: Sequence[tuple[str, str]] = ()) -> str:
    """The version of a program of the lab itself."""
    return hashlib.sha256(source.read_bytes() + (repr(requires).encode() if requires else b"")).hexdigest()[:12]


def own(name: str, source: Path, requires: Sequence[tuple[str, str]] = ()) -> Path:
    """A program of the lab itself, of one file, with the modules that it needs; built once for each state of its source."""
    folder = CACHE / "extras" / f"{name}-{version_of(source, requires)}-{architecture()}"
    if (folder / "complete").exists():
        return folder / name  # another build may hold the lock for half an hour
    with locked(CACHE / "lock", f"another process makes binaries; the lab's {name} waits for it"):
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "main.go").write_bytes(source.read_bytes())
            lines = "".join(f"require {module} {version}\n" for module, version in requires)
            (folder / "go.mod").write_text(f"module {name}\n\ngo 1.21\n\n{lines}")
            environment = {**_environment(), "CGO_ENABLED": "0"}
            with long_step(f"building the lab's {name} (once)"):
                if requires:
                    run(_go(), "mod", "tidy", env=environment, cwd=folder)
                run(_go(), "build", "-trimpath", "-ldflags=-s -w", "-o", folder / name, ".", env=environment, cwd=folder)
            (folder / "complete").touch()
    return folder / name


def cached(version: str) -> bool:
    """`get` has nothing to do for this version."""
    return bool(os.environ.get("KUBE_BIN_DIR")) or (CACHE / "kubernetes" / f"v{version}-{architecture()}" / "complete").exists()


def _download(version: str, folder: Path) -> bool:
    """The official release with its checksums; False where it cannot be reached. etcd has none there and is built."""
    base = f"{RELEASES}/v{version}/bin/linux/{architecture()}"
    try:
        _fetch(f"{base}/kubeadm.sha256", REACH_SECONDS)
    except LabError:
        say("the official Kubernetes release cannot be reached from here; building from Go modules")
        return False
    for name in KUBERNETES:
        with long_step(f"downloading {name} {version}"):
            wanted = _fetch(f"{base}/{name}.sha256", 30).decode().split()[0]
            data = _fetch(f"{base}/{name}", 600)
        found = hashlib.sha256(data).hexdigest()
        if found != wanted:
            raise LabError(f"{base}/{name} has sha256 {found}, and the release says {wanted}: do not use it")
        _install(data, folder / name)
    _build_etcd(folder, _etcd_version(version, _go()))
    return True


def _fetch(url: str, timeout: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return bytes(answer.read())
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise LabError(f"{url} cannot be downloaded: {error}") from error


def _install(data: bytes, path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.chmod(0o755)
    new.rename(path)


def _build(version: str, folder: Path) -> None:
    go = _go()
    module = _module(go, "k8s.io/kubernetes", f"v{version}")
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", (module / "go.mod").read_text(), re.MULTILINE)
    minor, patch = version.split(".")[1:]
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES]
    replaced = "".join(f"replace {name} => {name} v0.{minor}.{patch}\n" for name in staging)
    stamps = [
        f"-X {package}.{key}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in {
            "gitVersion": f"v{version}",
            "gitMajor": "1",
            "gitMinor": minor,
            "gitTreeState": "clean",
            "gitCommit": "0" * 40,
            "buildDate": "1970-01-01T00:00:00Z",
        }.items()
    ]
    with long_step(f"building Kubernetes {version} from Go modules (about 26 CPU minutes, once)"):
        _go_build(
            go,
            folder,
            f"require k8s.io/kubernetes v{version}\n{replaced}",
            packages,
            go_line=_go_line(module),
            ldflags=" ".join(["-s -w", *stamps]),
        )
    _build_etcd(folder, _etcd_version(version, go))


def _etcd_version(version: str, go: str) -> str:
    """The newest patch of the etcd minor that this version's kubeadm writes flags for."""
    constants = _module(go, "k8s.io/kubernetes", f"v{version}") / "cmd/kubeadm/app/constants/constants.go"
    found = re.search(r'DefaultEtcdVersion = "(\d+\.\d+)\.', constants.read_text())
    if not found:
        raise LabError(f"kubeadm {version} does not say which etcd it wants")
    listed = run(go, "list", "-m", "-versions", "go.etcd.io/etcd/server/v3", env=_environment(), cwd=_scratch()).stdout.split()
    fitting = [name for name in listed if re.fullmatch(rf"v{re.escape(found.group(1))}\.\d+", name)]
    return max(fitting, key=lambda name: int(name.rsplit(".", 1)[1]))


def _build_etcd(folder: Path, version: str) -> None:
    go = _go()
    with long_step(f"building etcd {version}"):
        _go_build(
            go,
            folder,
            f"require (\n\tgo.etcd.io/etcd/server/v3 {version}\n\tgo.etcd.io/etcd/etcdctl/v3 {version}\n)\n",
            ["go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdctl/v3"],
            go_line=_go_line(_module(go, "go.etcd.io/etcd/server/v3", version)),
            ldflags="-s -w",
        )
    (folder / "server").rename(folder / "etcd")
    (folder / "etcd.version").write_text(version.removeprefix("v") + "\n")


def _go_build(go: str, folder: Path, requires: str, packages: list[str], go_line: str, ldflags: str) -> None:
    scratch = _scratch() / folder.name / packages[0].replace("/", "_")
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "go.mod").write_text(f"module lab\n\ngo {go_line}\n\n{requires}")
    imports = "".join(f'\t_ "{package}"\n' for package in packages)
    (scratch / "tools.go").write_text(f"//go:build tools\n\npackage lab\n\nimport (\n{imports})\n")
    environment = {**_environment(), "CGO_ENABLED": "0"}
    run(go, "mod", "tidy", env=environment, cwd=scratch)
    for package in packages:
        # One at a time: linking several of these at once wants more memory than a small machine has.
        name = package.removesuffix("/v3").rsplit("/", 1)[1]
        run(go, "build", "-trimpath", f"-ldflags={ldflags}", "-o", folder / name, package, env=environment, cwd=scratch)
        say(f"built {name}")


def _scratch() -> Path:
    folder = CACHE / "build"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _environment() -> dict[str, str]:
    # Each Kubernetes names the Go it wants; GOTOOLCHAIN=auto fetches that as a module. -mod=mod: there is no vendor folder.
    return {**os.environ, "GOTOOLCHAIN": "auto", "GOFLAGS": "-mod=mod -buildvcs=false"}


def _module(go: str, path: str, version: str) -> Path:
    told = run(go, "mod", "download", "-json", f"{path}@{version}", env=_environment(), cwd=_scratch(), check=False)
    answer = json.loads(told.stdout or "{}")
    if "Dir" not in answer:
        raise LabError(f"{path} {version} cannot be had as a Go module: {answer.get('Error') or told.stderr.strip()}")
    return Path(answer["Dir"])


def _go_line(module: Path) -> str:
    found = re.search(r"^go (\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    return found.group(1) if found else "1.21"


def _go() -> str:
    """A Go that can fetch the toolchain it needs; Debian's own Go, where it is older, fetches one first."""
    local = CACHE / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", str(local)):
        if candidate and Path(candidate).exists() and _go_version(candidate) >= GO_WITH_TOOLCHAINS:
            return candidate
    # Go trusts what the machine trusts, and a bare Debian has no certificates.
    need_packages({"go": "golang-go", "update-ca-certificates": "ca-certificates"})
    debian = shutil.which("go") or "go"
    if _go_version(debian) >= GO_WITH_TOOLCHAINS:
        return debian
    toolchain = f"v0.0.1-go1.26.0.linux-{architecture()}"
    with long_step("fetching a newer Go toolchain"):
        unfinished = CACHE / "go.unfinished"
        remove_tree(unfinished, CACHE / "go")
        shutil.copytree(_module(debian, "golang.org/toolchain", toolchain), unfinished)
        # Files of a module come without the right to run them.
        for program in [unfinished / "bin" / "go", *(unfinished / "pkg" / "tool").rglob("*")]:
            program.chmod(0o755)
        unfinished.rename(CACHE / "go")
    return str(local)


def _go_version(go: str) -> tuple[int, int]:
    found = re.search(r"go(\d+)\.(\d+)", run(go, "version", env={**os.environ, "GOTOOLCHAIN": "local"}).stdout)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
