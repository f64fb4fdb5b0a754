"""A node's kubelet: its unit, its command line word by word, its configuration files. Pure, from one observation."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from roles.engine.bounds import misshaped
from roles.engine.editing import FormatError, Mapped, flags, kubelet_config, line_of, unit
from roles.engine.harmless import one_line
from roles.engine.kubelet import schema
from roles.engine.node import Observation, Process
from roles.engine.transaction import Refusal

# The variable that every packaging of the kubelet leaves to the operator.
OPERATORS_VARIABLE = "KUBELET_EXTRA_ARGS"
_KUBEADM_FLAGS = "kubeadm-flags.env"
_ROOT_DIRECTORY = "/var/lib/kubelet"  # cmd/kubelet/app/options, NewKubeletFlags
_DEFAULT_HEALTHZ_PORT = 10248  # kubelet config v1beta1, SetDefaults_KubeletConfiguration
_UNSUPPORTED = {
    "k3s": "k3s keeps the kubelet inside its own process; it is configured in /etc/rancher/k3s/config.yaml",
    "rke2": "RKE2 starts the kubelet itself; it is configured in /etc/rancher/rke2/config.yaml",
    "k0s": "k0s starts the kubelet itself; it is configured by k0s' worker profiles",
    "kubelite": "MicroK8s keeps the kubelet inside kubelite; it is configured in the snap",
    "machined": "Talos is configured by its own API (talosctl)",
}


@dataclass(frozen=True)
class Kubelet:
    """A kubelet that daytwo can change. `style` says where a new gate goes (kubeadm: the config file)."""

    seen: Observation
    process: Process
    unit_name: str
    sources: unit.Sources
    service: unit.Service
    style: Literal["kubeadm", "plain"]
    node_name: str
    config_path: str | None
    dropin_paths: tuple[str, ...]
    configuration: dict[str, Any]
    manifests: str | None
    health_url: str

    @property
    def root_directory(self) -> str:
        """Where the running kubelet keeps its own files (--root-dir). Raises Refusal for a path that depends on where it was started."""
        folder = flags.last_flag(self.process.argv, "root-dir") or _ROOT_DIRECTORY
        if not folder.startswith("/"):
            raise Refusal(self.seen.host, f"--root-dir={folder}: the kubelet's root directory is not an absolute path", "name it in full")
        return posixpath.normpath(folder)

    @property
    def config_paths(self) -> tuple[str, ...]:
        """Its configuration file, if it has one, and the drop-ins, in the order in which it reads them."""
        return (*([self.config_path] if self.config_path else []), *self.dropin_paths)

    @property
    def source_paths(self) -> tuple[str, ...]:
        """All that its settings come from: units, environment files, configuration files."""
        units = (unit.path for unit in (self.sources.fragment, *self.sources.dropins))
        return (*units, *(file.path for file in self.service.environment_files), *self.config_paths)

    @property
    def dropin_folder(self) -> str | None:
        """The directory of configuration drop-ins that the running kubelet reads (--config-dir)."""
        folder = flags.last_flag(self.process.argv, "config-dir")
        return posixpath.normpath(folder) if folder else None

    def dropins(self, paths: Iterable[str] = ()) -> tuple[str, ...]:
        """All existing drop-ins, and those of `paths` that would be one, in the order in which the kubelet reads them."""
        return _walked({*self.dropin_paths, *(path for path in paths if self.is_dropin(path))})

    def is_dropin(self, path: str) -> bool:
        """True for a path that the kubelet would read as a configuration drop-in."""
        return self.dropin_folder is not None and path.startswith(self.dropin_folder + "/") and path.endswith(".conf")

    def may_edit(self, path: str) -> bool:
        """True for a unit or drop-in that is the operator's and that a new file can replace: not a link to a package's file."""
        seen = self.seen.file(path)
        return unit.of_operator(path) and seen is not None and seen.why_not_replaceable() is None

    def line_of(self, origin: unit.Origin, mapped: Mapped) -> int | None:
        """The line (1-based) of a word that a source gives; a command and a variable can span several lines."""
        data = self.sources.data(origin.path)
        return line_of(data, mapped.spans[0][0]) if mapped.spans and data is not None else origin.line

    @property
    def minor(self) -> int:
        """The minor version of the running kubelet: 36 for v1.36.3. Raises Refusal if its settings are not known."""
        found = re.match(r"v?1\.([0-9]+)", self.process.version or "")
        minor = int(found.group(1)) if found else 0
        if not schema.OLDEST <= minor <= schema.NEWEST:
            raise Refusal(
                self.seen.host,
                f"the settings of this kubelet ({self.process.version or 'it did not report its version'}) are not known: "
                f"the table has v1.{schema.OLDEST} to v1.{schema.NEWEST}",
                "use a daytwo that knows this version",
            )
        return minor

    @property
    def is_known(self) -> bool:
        """True if the settings of its version are known (`minor`)."""
        return self.process.minor is not None and schema.OLDEST <= self.process.minor <= schema.NEWEST

    @property
    def flag_gates(self) -> dict[str, bool]:
        """Gates that the unit's files set on the command line."""
        return self.service.gates

    @property
    def gates(self) -> dict[str, bool]:
        """Gates that all sources together set: drop-ins override the config file, flags override both."""
        configured = self.configuration.get("featureGates") or {}
        return {**{str(name): bool(value) for name, value in configured.items()}, **self.flag_gates}


def wanted(seen: Observation) -> tuple[list[str], list[str]]:
    """Paths (files, directories) that the running kubelet's arguments or unit name, and that the first observation did not read."""
    files: list[str] = []
    directories: list[str] = []
    process = seen.kubelet
    if process is None:
        return [], []
    if seen.unit is not None:
        for path in (seen.unit.fragment, *seen.unit.dropins):
            data = seen.data(path)
            for entry in unit.entries(unit.UnitFile(path, data)) if data is not None else ():
                if entry.section == "Service" and entry.key == "EnvironmentFile" and entry.value.text:
                    files.append(entry.value.string.removeprefix("-"))
    if config := flags.last_flag(process.argv, "config"):
        files.append(config)
        manifests = flags.last_flag(process.argv, "pod-manifest-path") or _static_pod_path(seen.data(config))
        if manifests:
            directories.append(manifests)
    missing = [path for path in files if "%" not in path and seen.file(path) is None]
    return missing, [path for path in directories if not _listed(seen, path)]


def _listed(seen: Observation, path: str) -> bool:
    normal = posixpath.normpath(path)
    return normal in seen.directories or seen.file(normal) is not None


def _static_pod_path(config: bytes | None) -> str | None:
    try:
        found = kubelet_config.read(config).get("staticPodPath") if config is not None else None
    except FormatError:
        return None  # refused later, with the file named
    return str(found) if found else None


class UnsupportedNode(Refusal):
    """daytwo does not change this kind of node."""

    def __init__(self, host: str, why: str, way_out: str) -> None:
        super().__init__(host, f"unsupported kind of node: {why}", way_out)


def find(seen: Observation, *, to_change: bool = True) -> Kubelet:
    """The node's kubelet. Raises Refusal if daytwo does not change this kind of node, or cannot read it.

    Without `to_change`, only what prevents reading is refused: not missing tools, not an edit that systemd has not read, not a disabled
    health endpoint (`health_url` is "" then).
    """
    host = seen.host
    if seen.uid != 0:
        raise Refusal(host, f"daytwo needs root on the node, but runs as uid {seen.uid}", "set _sudo = True in the inventory's data")
    for name, reason in _UNSUPPORTED.items():
        # Only processes of the node itself: a pod may have processes of any name.
        if any(process.name.partition("-")[0] == name for process in seen.processes):
            raise UnsupportedNode(host, f"a process {name} runs here. {reason}", "change its configuration there")
    missing = {"flock", "systemctl", "systemd-run", "base64", "sha256sum", "stat", "sync", "nsenter"} - seen.tools
    if missing and to_change:
        raise Refusal(host, f"the node lacks {', '.join(sorted(missing))}", "install coreutils, util-linux and systemd")
    if to_change and not seen.tools & {"curl", "wget", "python3"}:
        raise Refusal(host, "the node has none of curl, wget and python3 to query health endpoints with", "install one of them")
    process, running = seen.kubelet, seen.unit
    if running is None or process is None:
        _refuse_none(seen)
    if len(kubelets := seen.named("kubelet")) > 1:
        raise Refusal(
            host,
            f"{len(kubelets)} kubelets run on the node itself: {', '.join(f'PID {one.pid}' for one in kubelets)}",
            "stop all but the right one, and disable the units of the others",
        )
    if running.unread and to_change:
        raise Refusal(
            host,
            f"{running.unread}: the next daemon-reload would apply more than this change",
            "check the edit, then run `systemctl daemon-reload` on the node",
        )
    try:
        return _kubelet(seen, process, to_change)
    except FormatError as error:
        raise Refusal(host, str(error), file=error.file) from None


def _refuse_none(seen: Observation) -> NoReturn:
    """Raises the Refusal that says why no process is the node's kubelet."""
    if seen.named("kubelet") or any((other.name, other.why) == ("kubelet", "unit") for other in seen.others):
        raise UnsupportedNode(
            seen.host,
            "the kubelet is not the main process of a systemd service",
            "let a service start it itself (ExecStart=/usr/bin/kubelet ...), and restart that service",
        )
    others = [str(other) for other in seen.others if other.name == "kubelet"]
    raise Refusal(
        seen.host,
        "; ".join(["no kubelet runs on this node", *others]),
        "start it first; daytwo derives all paths from the running kubelet",
    )


def _check_direct(host: str, service: unit.Service, process: Process, programs: Mapping[str, str]) -> None:
    """The unit must start the kubelet itself. Arguments of a shell or a script need not reach the kubelet: asking it about a candidate
    would start a second kubelet, and a flag would have no effect. Raises Refusal."""
    program = service.program
    listed = {path: file for path, file in programs.items() if program in (path, posixpath.basename(path))}
    started = next(iter(listed.values()), posixpath.normpath(program))
    if started != process.binary:
        through = f"{program} ({started})" if started != program else program
        raise Refusal(
            host,
            f"{service.command_path}:{service.command.line}: the unit starts {through}, but the running kubelet is {process.binary}: "
            "the arguments in the unit may not reach the kubelet",
            f"let ExecStart= start the kubelet itself (ExecStart={process.binary} ...), run `systemctl daemon-reload`, restart the unit; "
            "if only its file was moved since it started, a restart is enough",
            service.command_path,
        )


def refuse_waiting(host: str, argv: Sequence[str]) -> None:
    """Raises Refusal for a command line that ends in a flag without its value."""
    if (flag := flags.waiting(argv, schema.switches())) is not None:
        raise Refusal(
            host,
            f"the kubelet's command line ends in {flag}, which has no value and would take the next flag as its value",
            f"give it a value in the unit's files ({flag}=VALUE), or remove it",
        )


def _kubelet(seen: Observation, process: Process, to_change: bool) -> Kubelet:
    assert seen.unit is not None  # find() has checked
    units = []
    for path in (seen.unit.fragment, *seen.unit.dropins):
        data = seen.data(path)
        if data is None:
            raise Refusal(seen.host, f"{path}: the unit file cannot be read", "restore it, or run `systemctl daemon-reload`", path)
        units.append(unit.UnitFile(path, data))
    environment = {path: file.data for path, file in seen.files.items()}
    release = int(seen.systemd or 0)
    sources = unit.Sources(units[0], tuple(units[1:]), environment, release, {"H": seen.hostname})
    service = sources.resolve()
    _check_direct(seen.host, service, process, seen.programs)
    for argv in ([word.text for word in service.argv], process.argv):
        refuse_waiting(seen.host, argv)
        flags.effective_gates(argv)  # raises FormatError
    # Only the environment files belong to the sources, not other observed files.
    listed = {file.path: environment[file.path] for file in service.environment_files}
    sources = replace(sources, environment_files=listed)
    config_path = flags.last_flag(process.argv, "config")
    dropin_paths = _dropins(seen, process)
    for configured in (*([config_path] if config_path else []), *dropin_paths):
        content = seen.data(configured)
        if content is None:
            raise Refusal(
                seen.host,
                f"{configured}: the kubelet's configuration comes from this file, but it cannot be read now (it is missing, not a file,"
                " or over 1 MiB). The kubelet would not start again",
                "repair it first",
                configured,
            )
        try:
            kubelet_config.gates(content)
        except FormatError as error:
            raise error.in_file(configured) from None
    main = seen.data(config_path) if config_path else None
    configuration = kubelet_config.merge(main, [seen.data(path) or b"" for path in dropin_paths])
    if why := misshaped(configuration, schema.SHAPE):
        files = [one for one in (config_path, *dropin_paths) if one]
        what = f"{' and '.join(files)}: {one_line(why)}; the kubelet would not start again"
        raise Refusal(seen.host, what, "correct it first", files[-1])
    places = filter(None, (seen.unit.name, config_path, *dropin_paths))
    name = flags.last_flag(process.argv, "hostname-override") or seen.hostname
    kubeadm = any(posixpath.basename(file.path) == _KUBEADM_FLAGS for file in service.environment_files)
    manifests = flags.last_flag(process.argv, "pod-manifest-path") or configuration.get("staticPodPath") or None
    return Kubelet(
        seen=seen,
        process=process,
        unit_name=seen.unit.name,
        sources=sources,
        service=service,
        style="kubeadm" if kubeadm else "plain",
        node_name=name.strip().lower(),
        config_path=posixpath.normpath(config_path) if config_path else None,
        dropin_paths=dropin_paths,
        configuration=configuration,
        manifests=posixpath.normpath(manifests) if manifests else None,
        health_url=_health_url(seen.host, process.argv, configuration, ", ".join(places), to_change),
    )


def _dropins(seen: Observation, process: Process) -> tuple[str, ...]:
    """The configuration drop-ins that the kubelet would read if it started now. Raises Refusal if it could not read their directory."""
    folder = flags.last_flag(process.argv, "config-dir")
    if not folder:
        return ()
    path = posixpath.normpath(folder)
    itself = seen.file(path)
    if itself is not None and itself.kind == "link":
        # filepath.WalkDir does not follow a link as its root, unless the path ends in a slash.
        raise Refusal(
            seen.host,
            f"--config-dir={folder}: this is a symbolic link; the kubelet does not follow it, and reads none of the drop-ins there",
            f"name the directory that it points to, or write {path}/",
        )
    if path not in seen.directories:
        raise Refusal(
            seen.host,
            f"--config-dir={folder}: this directory does not exist now; the kubelet would not start again",
            f"create it (mkdir -p {path}), or remove the flag",
        )
    return _walked(found for found in seen.files if found.startswith(path + "/") and found.endswith(".conf"))


def _walked(paths: Iterable[str]) -> tuple[str, ...]:
    """In the order in which the kubelet walks its --config-dir (Go's filepath.WalkDir): by name, directory by directory."""
    return tuple(sorted(paths, key=lambda path: [os.fsencode(part) for part in path.split("/")]))


def _health_url(host: str, argv: tuple[str, ...], configuration: dict[str, Any], where: str, needed: bool) -> str:
    """`where`: the unit and the configuration files, for the refusal."""
    flag = flags.last_flag(argv, "healthz-port")
    port = flag or str(configuration.get("healthzPort", _DEFAULT_HEALTHZ_PORT))
    address = flags.last_flag(argv, "healthz-bind-address") or str(configuration.get("healthzBindAddress") or "127.0.0.1")
    if port == "0" and not needed:
        return ""
    if port == "0":
        raise Refusal(
            host,
            f"{where}: {'--healthz-port=0' if flag else 'healthzPort: 0'} disables the kubelet's health endpoint: daytwo could not confirm "
            "that it is healthy again",
            f"set a port there (the default is {_DEFAULT_HEALTHZ_PORT}), and restart the kubelet",
        )
    if address in ("0.0.0.0", "::", ""):  # noqa: S104 - the kubelet's setting, not what is bound here
        address = "127.0.0.1"
    return f"http://{f'[{address}]' if ':' in address else address}:{port}/healthz"
