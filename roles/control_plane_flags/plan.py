"""Pure: the desired flags and files of one node -> a change of each component, the questions to its binary, and the judgement."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roles.control_plane_flags import dangers, places
from roles.control_plane_flags.compliance import naming as naming_flags
from roles.control_plane_flags.compliance import unmet, unmet_files, wanted_of, wrong_attributes
from roles.control_plane_flags.listed_flags import ListedFlag, alike, parse_flags
from roles.control_plane_flags.model import DesiredFile, DesiredFlags
from roles.engine.control_plane import (
    COMPONENTS,
    RULES,
    Component,
    ask_flags,
    beyond_the_trick,
    control_plane_plan,
    scheduler_kubeconfig,
)
from roles.engine.editing import FlagValues, FormatError, any_flag, manifest_parts
from roles.engine.kubeadm_config import ARGUMENTS, VOLUMES, ConfigMapPath
from roles.engine.kubelet import Kubelet, ask
from roles.engine.node import Observation
from roles.engine.node_changes import ComponentPlan, NodePlan, Verdicts, refused_anyway
from roles.engine.proof import SurveyedNode
from roles.engine.proof.effective import written
from roles.engine.transaction import Effective, FileEdit, Refusal, mask_text

_UNKNOWN = re.compile(r"unknown flag: --([\w-]+)")
_FILE = "file "


@dataclass(frozen=True, kw_only=True)
class FlagPlan(ComponentPlan):
    """The flags `wanted` on one component, and those of its manifest `now`; its `files`, and the flags `naming` each of them."""

    wanted: Mapping[str, FlagValues]
    now: Mapping[str, FlagValues]
    files: Mapping[str, DesiredFile | None]
    naming: Mapping[str, Sequence[str]]

    @property
    def contents(self) -> list[str]:
        """The paths of the files whose content changes."""
        return [edit.path for edit in self.change.files[:-1]] if self.change else []


@dataclass(frozen=True)
class NodeFlags(NodePlan[FlagPlan]):
    """The plan of one node."""


def plan_flags(run_id: str, node: SurveyedNode, desired: DesiredFlags) -> NodeFlags:
    """The plan of one node. Raises Refusal."""
    seen, found, control = node.seen, node.kubelet, node.control
    if not control.components:
        return NodeFlags(seen.host, found, {}, ())
    _check_places(found, desired)
    owners = _owners(seen, control.components, desired)
    planned: list[FlagPlan] = []
    warnings = list(control.warnings)
    for name in COMPONENTS:
        wanted = wanted_of(seen.host, name, desired)
        files = {path: desired.control_plane_files[path] for path, owner in owners.items() if owner == name}
        if not wanted and not files:
            continue
        if (refusal := control.refusals.get(name)) is not None:
            raise refusal
        if name in control.components:
            component = control.components[name]
            planned.append(_component(run_id, component, found, wanted, files))
            warnings += control_plane_plan.warnings(component)
    return NodeFlags(seen.host, found, control.components, tuple(planned), tuple(warnings))


# ---- files


def _check_places(found: Kubelet, desired: DesiredFlags) -> None:
    """Raises Refusal for a file in the directory of static pods, whatever its name is."""
    folder = found.manifests
    for path in desired.control_plane_files:
        if folder is not None and path.startswith(f"{folder.rstrip('/')}/"):
            raise Refusal(found.seen.host, f"{path}: the kubelet reads every file in {folder} as a static pod", "choose another directory")


def _owners(seen: Observation, components: Mapping[str, Component], desired: DesiredFlags) -> dict[str, str]:
    """By file the component that reads it. Raises Refusal: a change is of one component, so each file must belong to one."""
    host = seen.host
    if not desired.includes(host):
        return {}
    future = {name: _future(one, wanted_of(host, name, desired)) for name, one in components.items()}
    found: dict[str, str] = {}
    for path, file in desired.control_plane_files.items():
        readers = [name for name, flags in future.items() if naming_flags(flags, path)]
        if file is None:
            if readers:
                flag = next(iter(naming_flags(future[readers[0]], path)))
                raise Refusal(host, f"{path} would be removed, and --{flag} of {readers[0]} names it", f"remove that too: {flag}: absent")
            readers = _last_readers(components, path)
            if readers and (other := _named_elsewhere(seen, components, path)):
                raise Refusal(host, f"{path} would be removed, and {other} names it", "take it out of the data, or change that file first")
        elif file.component is not None:
            readers = list(dict.fromkeys([*readers, file.component]))
        if not readers and file is None:
            if (there := seen.file(path)) is None or there.kind != "none":
                rule = (
                    f"{path} would be removed, and no flag of a component names it, and no mount is of it alone: nobody knows who needs it"
                )
                raise Refusal(host, rule, "remove it on the node if nobody needs it, or take it out of the data")
            continue
        if not readers:
            raise Refusal(
                host, f"{path}: no flag of a component names it", "name it in a flag, or write component: NAME if another file names it"
            )
        if len(readers) > 1:
            raise Refusal(host, f"{path} is for {' and '.join(readers)}, and a change is of one component", "give each its own file")
        found[path] = readers[0]
    return found


def _future(component: Component, wanted: Mapping[str, FlagValues]) -> dict[str, tuple[str, ...]]:
    """The flags of a component after the change."""
    after = {**any_flag.every(component.argv), **wanted}
    return {name: values for name, values in after.items() if values is not None}


def _last_readers(components: Mapping[str, Component], path: str) -> list[str]:
    """The components that read a file which is to be removed, and which no flag will name: those that mount it alone; or those whose flags
    name it now, and that have it by a directory."""
    alone = [name for name, one in components.items() if _mounts(one, path)]
    return alone or [name for name, one in components.items() if naming_flags(any_flag.every(one.argv), path)]


def _named_elsewhere(seen: Observation, components: Mapping[str, Component], path: str) -> str:
    """Another file of the node that names this one; "" for none. In the manifests of the components the flags decide."""
    own = {path, *(one.file.path for one in components.values())}
    return next((name for name, file in seen.files.items() if name not in own and path.encode() in (file.data or b"")), "")


def _mounts(component: Component, path: str) -> bool:
    try:
        return manifest_parts.mounted_alone(component.data, component.container, path)
    except FormatError:
        return False


def _edits(seen: Observation, files: Mapping[str, DesiredFile | None], hidden: set[str]) -> Iterator[FileEdit]:
    """The files that change. Raises Refusal."""
    for path, file in files.items():
        now = seen.file(path)
        if now is None:
            raise Refusal(seen.host, f"{path} was not read", "run the command again")
        if why := now.why_not_replaceable():
            raise Refusal(seen.host, f"{path} {why}")
        if now.kind == "file" and now.data is None:
            raise Refusal(seen.host, f"{path} is over 1 MiB, or cannot be read", "move it away first")
        if file is not None and (wrong := wrong_attributes(seen, path, file)):
            way_out = "change that on the node with chmod or chown, or write what it has: daytwo sets mode and owner of new files only"
            raise Refusal(seen.host, f"{path} exists and {wrong}", way_out)
        after = None if file is None else file.content
        if now.data == after:
            continue
        new = file if now.kind == "none" else None
        mode = (0o600 if new.mode is None else new.mode) if new else now.mode
        owner = (new.owner or "") if new else f"{now.uid}:{now.gid}"
        yield FileEdit(path, now.data, after, mode, owner, path in hidden)


# ---- one component


def _component(
    run_id: str, component: Component, found: Kubelet, wanted: Mapping[str, FlagValues], files: Mapping[str, DesiredFile | None]
) -> FlagPlan:
    """Raises Refusal."""
    future = _future(component, wanted)
    naming = {path: naming_flags(future, path) for path in files}
    hidden = {path for path, file in files.items() if _is_hidden(file, naming[path])}
    _check_scheduler(component, future, files)
    edits = tuple(_edits(found.seen, files, hidden))
    mounts = {path: file is not None for path, file in files.items()}
    after = control_plane_plan.edit_parts(component, wanted, mounts)
    if edits and after == component.data:
        # The manifest means the same, and so the kubelet would keep the container, which keeps the old file.
        stamp = hashlib.sha256(b"\0".join(edit.after or b"" for edit in edits)).hexdigest()[:16]
        after = control_plane_plan.edit_parts(component, wanted, mounts, stamp)
    summary = ", ".join([*(mask_text(_asked(name, values)) for name, values in wanted.items()), *(_FILE + edit.path for edit in edits)])
    changes = after != component.data
    change = control_plane_plan.change(component, after, found.unit_name, run_id, summary, edits) if changes else None
    contents = {path: b"" if path in hidden else file.content for path, file in files.items() if file is not None}
    present = {path: b"" if path in hidden else found.seen.data(path) or b"" for path in files}
    lists = ask.list_flags(component.name, component.process, component.log_name)
    argv = (control_plane_plan.argv(component, after) if change else None) or component.argv
    now = {name: any_flag.given(component.argv, name, values) for name, values in wanted.items()}
    proven = {**wanted, **{flag: future[flag] for flags in naming.values() for flag in flags if flag not in wanted}}
    return FlagPlan(
        component.name,
        change,
        question="\n".join([ask_flags(component, argv, contents), lists]),
        question_present=ask_flags(component, component.argv, {path: data for path, data in present.items() if path in hidden or data}),
        flags=proven,
        effective=Effective(flags={name: {"before": _listed(now[name]), "after": _listed(values)} for name, values in wanted.items()}),
        lasting=_lasting(component, wanted, files),
        wanted=wanted,
        now=now,
        files=files,
        naming=naming,
    )


def _check_scheduler(component: Component, future: Mapping[str, tuple[str, ...]], files: Mapping[str, DesiredFile | None]) -> None:
    """Raises Refusal for a scheduler that would lose its kubeconfig: with --config it ignores --kubeconfig
    (cmd/kube-scheduler/app/options/options.go, ApplyTo)."""
    kubeconfig = future.get("kubeconfig")
    if component.name != dangers.SCHEDULER or not kubeconfig:
        return
    for path in future.get("config", ()):
        file = files.get(path)
        if file is not None and scheduler_kubeconfig(file.content) == "":
            raise Refusal(
                component.host,
                f"{path} names no kubeconfig, and with --config the scheduler ignores --kubeconfig",
                f"write there: clientConnection: {{kubeconfig: {kubeconfig[-1]}}}",
            )


def _is_hidden(file: DesiredFile | None, flags: Sequence[str]) -> bool:
    # A file that goes away: no flag names it any more, so nobody knows.
    if file is None or file.secret or _has_key(file.content):
        return True
    return file.secret is None and not (flags and all(dangers.NAMES_PUBLIC.fullmatch(flag) for flag in flags))


def _has_key(content: bytes) -> bool:
    text = content.decode("utf-8", "replace")
    return mask_text(text) != text and "PRIVATE KEY" in text


def _listed(values: FlagValues) -> list[str] | None:
    return None if values is None else list(values)


def _asked(name: str, values: FlagValues) -> str:
    return f"--{name}=absent" if values is None else written(name, values)


def _lasting(component: Component, wanted: Mapping[str, FlagValues], files: Mapping[str, DesiredFile | None]) -> dict[ConfigMapPath, Any]:
    """What kubeadm keeps: not what holds a secret, and no file that is in the container by a directory."""
    found: dict[ConfigMapPath, Any] = {
        (ARGUMENTS, name): _listed(values) for name, values in wanted.items() if mask_text(written(name, values)) == written(name, values)
    }
    for path, file in files.items():
        if file is None:
            found[VOLUMES, path] = None
        elif not _covered(component, path) or _mounts(component, path):
            found[VOLUMES, path] = True
    return found


def _covered(component: Component, path: str) -> bool:
    try:
        return manifest_parts.mounted(component.data, component.container, path)
    except FormatError:
        return False


# ---- the judgement


def judge_flags(plan: NodeFlags, verdicts: Verdicts, desired: DesiredFlags) -> NodeFlags:
    """The plan with the warnings and refusals that follow from the answers of the binaries, from daytwo's own rules about dangerous flags,
    and from processes that do not have what their files have."""
    warnings = list(plan.warnings)
    refusals: list[object] = list(plan.refusals)
    planned: list[FlagPlan] = []
    for one in plan.planned:
        listed = parse_flags(verdicts.flags.get(one.component, ""))
        refusals += _dangers(plan, one, desired, verdicts, warnings)
        refusals += _misplaced(plan, one, desired, warnings)
        if one.change is None:
            refusals += _not_in_effect(plan, one, desired)
        else:
            refusals += _objections(plan, one, verdicts, listed, warnings)
            refusals += _several(plan, one, listed)
            said = verdicts.deprecated.get(one.component, ())
            warnings += [f"{plan.version(one.component)} says: {text}" for text in said if any(f"--{name} " in text for name in one.wanted)]
            warnings += [
                f"{one.component}: --{name}: {listed[name].deprecated}"
                for name, values in one.wanted.items()
                if values is not None and name in listed and listed[name].deprecated
            ]
        planned.append(replace(one, lasting=_joined(one.lasting, listed)))
    return replace(plan, planned=tuple(planned), warnings=tuple(dict.fromkeys(warnings)), refusals=tuple(refusals))


def _dangers(plan: NodeFlags, one: FlagPlan, desired: DesiredFlags, verdicts: Verdicts, warnings: list[str]) -> Iterator[Refusal]:
    unknown = _UNKNOWN.findall(verdicts.against.get(one.component) or "")
    for name, values in one.wanted.items():
        if any_flag.same(one.now[name], values) or name in unknown:
            continue
        why = dangers.danger(one.component, name, one.now[name], values)
        if why is None:
            continue
        yield from _consent(plan, f"{one.component}: {mask_text(_asked(name, values))}: {why}", name, desired, warnings)
    for path in one.contents:
        for name in one.naming.get(path, ()):
            why = dangers.danger(one.component, name, None, (path,))
            if why is not None and any_flag.same(one.now.get(name), one.wanted.get(name)):
                yield from _consent(plan, f"{one.component}: {path}, which --{name} names: {why}", name, desired, warnings)


def _consent(plan: NodeFlags, what: str, name: str, desired: DesiredFlags, warnings: list[str], instead: str = "") -> Iterator[Refusal]:
    if name in desired.allow_flags:
        warnings.append(f"{what} (allowed by allow_flags)")
    else:
        yield Refusal(plan.host, what, f"{f'{instead}; ' if instead else ''}to accept that, add --data allow_flags={name}")


def _misplaced(plan: NodeFlags, one: FlagPlan, desired: DesiredFlags, warnings: list[str]) -> Iterator[Refusal]:
    """Paths of changed flags that are not on the node."""
    component = plan.components[one.component]
    changed = {name: values for name, values in one.wanted.items() if values is not None and not any_flag.same(one.now[name], values)}
    if one.change is None or not changed:
        return
    argv = one.change.new_argv or component.argv
    for found in places.misplaced(one.component, component.container, one.change.files[-1].after or b"", argv, changed):
        what = f"{one.component}: {mask_text(_asked(found.flag, changed[found.flag]))}: {found.why}"
        if found.fatal:
            yield Refusal(plan.host, what, found.way_out)
        else:
            yield from _consent(plan, what, found.flag, desired, warnings, found.way_out)


def _not_in_effect(plan: NodeFlags, one: FlagPlan, desired: DesiredFlags) -> Iterator[str]:
    """A component whose files are as desired, but whose process is not."""
    component = plan.components[one.component]
    files = [file for file in unmet_files(plan.kubelet.seen, {one.component: component}, desired) if file.path in one.files]
    wrong = [*map(str, unmet(component, one.wanted)), *map(str, files)]
    if wrong:
        yield (
            f"{plan.host}: {one.component} still runs with old arguments although its files are right: {'; '.join(wrong)}. "
            "Move its manifest away for a minute and back, then run this again"
        )


def _objections(
    plan: NodeFlags, one: FlagPlan, verdicts: Verdicts, listed: Mapping[str, ListedFlag], warnings: list[str]
) -> Iterator[Refusal]:
    """What the component's own binary refuses."""
    version = plan.version(one.component)
    asked = mask_text(", ".join(_asked(name, values) for name, values in one.wanted.items())) or ", ".join(one.files)
    objection = verdicts.against.get(one.component)
    anyway = refused_anyway(plan, one.component, verdicts)
    if objection is None or (objection and anyway is not None):
        if anyway is not None:
            yield anyway
        return
    if objection:
        unknown = _UNKNOWN.findall(objection)
        near = alike(unknown[0], listed) if len(unknown) == 1 else []
        mistake = f"--{' or --'.join(near)}? You wrote --{unknown[0]}" if near else ""
        message = f"{version} refuses {asked}: {objection}"
        yield Refusal(plan.host, message, _way_out(objection, listed), mistake=mistake, by=one.component)
        return
    name = f"{one.component}{RULES}"
    if name not in verdicts.against:
        warnings.append(f"{version} gave no answer about its rules: only the form of the values was checked")
        return
    rules, present = (beyond_the_trick(found.get(name, "")) for found in (verdicts.against, verdicts.present))
    if rules and rules == present:
        warnings.append(f"{version} could not be asked about its rules, only about the form of the values: it already says: {rules}")
    elif rules:
        yield Refusal(plan.host, f"{version} refuses {asked}: {rules}", "correct the data")


def _way_out(objection: str, listed: Mapping[str, ListedFlag]) -> str:
    unknown = _UNKNOWN.search(objection)
    if unknown is None:
        return "correct the value"
    near = alike(unknown[1], listed)
    return f"did you mean --{' or --'.join(near)}?" if near else "this version does not have it, or no longer: remove it from the data"


def _several(plan: NodeFlags, one: FlagPlan, listed: Mapping[str, ListedFlag]) -> Iterator[Refusal]:
    """Lists for flags of which only the last value counts."""
    for name, values in one.wanted.items():
        if values is not None and len(values) > 1 and name in listed and not listed[name].several:
            kind = listed[name].kind
            yield Refusal(plan.host, f"{one.component}: --{name} has one value ({kind}): of several the last one counts", "write one value")


def _joined(lasting: Mapping[ConfigMapPath, Any], listed: Mapping[str, ListedFlag]) -> dict[ConfigMapPath, Any]:
    """kubeadm's values: a list that may have commas is one value, which every version of its configuration can have."""
    return {
        path: [",".join(value)] if path[0] == ARGUMENTS and value and path[1] in listed and listed[path[1]].commas else value
        for path, value in lasting.items()
    }


_ON_ALL = "they answer in turn, and it must be the same on all; run this for all control-plane nodes, without nodes= and --limit"


def _of_apiservers(plans: Sequence[NodeFlags]) -> list[tuple[str, FlagPlan]]:
    return [(plan.host, one) for plan in plans for one in plan.planned if one.component == dangers.API_SERVER]


def _listing(values: Mapping[str, str]) -> str:
    return ", ".join(f"{host}: {value}" for host, value in values.items())


def differing(plans: Sequence[NodeFlags], present: Mapping[str, Component]) -> list[str]:
    """Flags of a run that all API servers must share, and that would differ between them after it. `present`: the API servers, by host."""
    future = {host: any_flag.every(component.argv) for host, component in present.items()}
    changed: dict[str, None] = {}
    for host, one in _of_apiservers(plans):
        if host in future:
            future[host] |= {name: values or () for name, values in one.wanted.items()}
            changed |= dict.fromkeys(name for name in one.wanted if dangers.MUST_BE_EQUAL.fullmatch(name))
    lines = []
    for name in changed:
        values = {host: flags.get(name) or None for host, flags in future.items()}
        if any(not any_flag.same(value, next(iter(values.values()))) for value in values.values()):
            shown = _listing({host: mask_text(written(name, value)) for host, value in values.items()})
            lines.append(f"WARNING --{name} will differ between the API servers ({shown}): {_ON_ALL}")
    return lines


def differing_files(plans: Sequence[NodeFlags], present: Collection[str]) -> list[str]:
    """Files that change in a run, whose content all API servers must share, and that may differ between them after it. `present`: the hosts
    with an API server; of one that is not in the run it is not known what it has."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    changed: set[str] = set()
    for host, one in _of_apiservers(plans):
        for path, names in one.naming.items():
            if shared := [name for name in names if dangers.MUST_BE_EQUAL.fullmatch(name)]:
                file = one.files[path]
                found.setdefault(path, (shared[0], {}))[1][host] = digest(None if file is None else file.content)
                changed |= {path} & {*one.contents}
    lines = []
    for path in (path for path in found if path in changed):
        flag, digests = found[path]
        values = {host: digests.get(host, "not in this run") for host in present}
        if len({*values.values()}) > 1:
            lines.append(
                f"WARNING {path} (--{flag}) changes, and may then differ between the API servers ({_listing(values)}): {_ON_ALL}, with one"
                " content"
            )
    return lines


def digest(data: bytes | None) -> str:
    """The content of a file, for people."""
    return "absent" if data is None else f"sha256 {hashlib.sha256(data).hexdigest()[:12]}"
