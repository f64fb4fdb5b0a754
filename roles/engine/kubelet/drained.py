"""What a changed setting needs besides a restart of the kubelet: a drained node, and the removal of a checkpoint. Pure.

A checkpoint is a file in the kubelet's root directory in which it keeps what a policy assigned, and that policy's name. It does not start
with one that does not fit its configuration, and creates the file if there is none.

Sources (Kubernetes 1.32 to 1.36): pkg/kubelet/cm/{cpumanager,memorymanager}/state/state_checkpoint.go (restoreState, storeState),
pkg/kubelet/cm/cpumanager/{cpu_manager,policy_static,policy_none}.go, pkg/kubelet/cm/memorymanager/{memory_manager,policy_static}.go
(validateReservedMemory, validateState), pkg/kubelet/cm/topologymanager/topology_manager.go (NewManager), pkg/kubelet/kubelet.go
(HandlePodAdditions; SyncPod: pods without a cgroup of the present driver are killed and created again),
pkg/kubelet/kuberuntime/kuberuntime_container_linux.go (configureContainerSwapResources); kubernetes.io, cpu-management-policies and
memory-manager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from roles.engine.bounds import read_json
from roles.engine.kubelet.allocatable import reserved_cpus
from roles.engine.kubelet.values import in_effect, lookup, shown
from roles.engine.transaction import FileEdit, RuntimeRestart

Configuration = Mapping[str, Any]

CPU: Final = "cpu_manager_state"
MEMORY: Final = "memory_manager_state"
DRIVER: Final = "cgroupDriver"
SWAP: Final = "memorySwap.swapBehavior"
NONE: Final = "none"
# The field with the policy of each checkpoint, and its default.
_POLICY: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({CPU: ("cpuManagerPolicy", NONE), MEMORY: ("memoryManagerPolicy", "None")})
_STATIC: Final = "static"


@dataclass(frozen=True)
class Rule:
    """Some `fields` whose change needs a drained node. `when` compares the configuration before and after; `why` is for an operator;
    `checkpoint` is the file that must not exist when the kubelet starts ("": none is concerned). `recreates`: the new kubelet creates the
    pods that a drain leaves again. `with_swap`: it only matters while swap is on. `note`: what stays different all the same."""

    fields: tuple[str, ...]
    when: Callable[[Configuration, Configuration], bool]
    why: str
    checkpoint: str = ""
    recreates: bool = False
    with_swap: bool = False
    note: str = ""


#: The field with the policy of each checkpoint.
FIELD: Final = MappingProxyType({name: field for name, (field, _) in _POLICY.items()})


def policy(configuration: Configuration, checkpoint: str) -> str:
    """The policy that a kubelet with this configuration writes into a checkpoint."""
    name, default = _POLICY[checkpoint]
    return str(configuration.get(name) or default)


def _differs(*fields: str) -> Callable[[Configuration, Configuration], bool]:
    return lambda before, after: any(not in_effect(lookup(after, name), lookup(before, name)) for name in fields)


def _policy_differs(checkpoint: str) -> Callable[[Configuration, Configuration], bool]:
    return lambda before, after: policy(before, checkpoint) != policy(after, checkpoint)


def _static(checkpoint: str, and_when: Callable[[Configuration, Configuration], bool]) -> Callable[[Configuration, Configuration], bool]:
    """Only what the static policy had stored can be in the way of the static policy."""

    def when(before: Configuration, after: Configuration) -> bool:
        return {policy(before, checkpoint).lower(), policy(after, checkpoint).lower()} == {_STATIC} and and_when(before, after)

    return when


def _aligned(before: Configuration, after: Configuration) -> bool:
    """A topology policy is or will be in effect; without one, its scope and its options mean nothing."""
    names = ("topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions")
    policies = {str(one.get(names[0]) or NONE) for one in (before, after)}
    return policies != {NONE} and (len(policies) > 1 or _differs(*names[1:])(before, after))


def limited_swap(configuration: Configuration) -> bool:
    """Its Burstable pods may use swap (pkg/kubelet/types/constants.go; NoSwap is the default)."""
    return bool(lookup(configuration, SWAP) == "LimitedSwap")


def _swap_differs(before: Configuration, after: Configuration) -> bool:
    return limited_swap(before) != limited_swap(after)


_OTHER_POLICY = "the kubelet does not start while {} has another policy (`configured policy ... differs from state checkpoint policy`)"

RULES: Final = (
    Rule(("cpuManagerPolicy",), _policy_differs(CPU), _OTHER_POLICY.format(CPU), CPU),
    Rule(
        ("cpuManagerPolicyOptions",),
        _static(CPU, _differs("cpuManagerPolicyOptions")),
        f"{CPU} has CPUs that the old options assigned; after a switch of strict-cpu-reservation the kubelet does not start with it",
        CPU,
    ),
    Rule(
        ("reservedSystemCPUs", "systemReserved", "kubeReserved"),
        _static(CPU, lambda before, after: reserved_cpus(before) != reserved_cpus(after)),
        f"the static CPU manager does not start if {CPU} does not fit the reserved CPUs (`not all reserved cpus ... are present`)",
        CPU,
    ),
    Rule(("memoryManagerPolicy",), _policy_differs(MEMORY), _OTHER_POLICY.format(MEMORY), MEMORY),
    Rule(
        ("reservedMemory",),
        _static(MEMORY, _differs("reservedMemory")),
        f"the Static memory manager does not start unless {MEMORY} was created with the same reservedMemory (`the expected machine state is"
        " different from the real one`)",
        MEMORY,
    ),
    Rule(
        ("topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions"),
        _aligned,
        "the kubelet admits running pods again, by the new rule, and those that do not fit fail (TopologyAffinityError)",
    ),
    Rule(
        (DRIVER,),
        _differs(DRIVER),
        "the kubelet ends every pod that still runs, and creates it again in the cgroups of the new driver",
        recreates=True,
        note="pods of DaemonSets and static pods are ended and created again in place; the empty cgroups of the old driver stay until the"
        " node reboots",
    ),
    Rule(
        (SWAP,),
        _swap_differs,
        "swap is on, and a container's limit of it (memory.swap.max) is set only when the container is created",
        with_swap=True,
        note="containers that run on (of DaemonSets, static pods) keep their limit of swap until they are created again",
    ),
)

# Every field that one of the rules may be about.
FIELDS: Final = frozenset(name for rule in RULES for name in rule.fields)


@dataclass(frozen=True)
class RuntimeEdit:
    """What brings the runtime to the wanted `driver`: its restart, its new `file` (None: it has that driver), and a `note` for the plan."""

    driver: str
    restart: RuntimeRestart
    file: FileEdit | None
    note: str


@dataclass(frozen=True)
class Needed:
    """What a change needs besides a restart. `why`: by field, as sentences; `checkpoints`: by the name of a file, the policy that a new one
    must have; `notes`: what stays different all the same; `recreates`: the new kubelet creates the remaining pods again; `runtime`: how the
    container runtime takes part in it (None: it runs on)."""

    why: tuple[str, ...]
    checkpoints: Mapping[str, str]
    notes: tuple[str, ...] = ()
    recreates: bool = False
    runtime: RuntimeEdit | None = None


def needed(before: Configuration, after: Configuration, *, swap_on: bool = True) -> Needed | None:
    """What a kubelet that runs with `before` (/configz) needs to run with `after`; None if a restart is enough. Raises ValueError if a
    reservation cannot be parsed."""
    found = [rule for rule in RULES if (swap_on or not rule.with_swap) and rule.when(before, after)]
    if not found:
        return None
    names = dict.fromkeys(rule.checkpoint for rule in found if rule.checkpoint)
    notes = tuple(rule.note for rule in found if rule.note)
    recreates = any(rule.recreates for rule in found)
    if policy(before, CPU) == _STATIC != policy(after, CPU) and not recreates:
        notes = ("containers that run now keep the CPUs that the static policy gave them until they are created again", *notes)
    return Needed(
        tuple(f"{', '.join(_changed(rule, before, after))}: {rule.why}" for rule in found),
        {name: policy(after, name) for name in names},
        notes,
        recreates,
    )


def _changed(rule: Rule, before: Configuration, after: Configuration) -> list[str]:
    return [name for name in rule.fields if _differs(name)(before, after)] or [rule.fields[0]]


def problems(after: Configuration) -> list[str]:
    """Why a kubelet with this configuration would not start, whatever is stored, as far as its own validation does not say it."""
    options = after.get("cpuManagerPolicyOptions")
    if options and policy(after, CPU) == NONE:
        return [
            f"cpuManagerPolicyOptions: the CPU manager policy none has no options, and the kubelet would not start with"
            f" {shown(options)}; set cpuManagerPolicyOptions=absent in the same run"
        ]
    return []


def stored_policy(data: bytes) -> str:
    """The name of the policy in a checkpoint. Raises ValueError if these bytes are no checkpoint."""
    try:
        found = read_json(data)
    except ValueError:
        raise ValueError("it is not JSON") from None
    name = found.get("policyName") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise ValueError("it has no policyName")
    return name
