"""The plan of one node, component by component: a capability creates it, and the engine (capability.py) carries it out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar

from roles.engine.control_plane import RULES, Component, places
from roles.engine.kubeadm_config import ConfigMapPath, as_given
from roles.engine.kubelet import Kubelet, KubeletState, ask, blame
from roles.engine.node import Process
from roles.engine.proof import RequiredProof
from roles.engine.transaction import Change, Effective, Refusal

KUBELET = "kubelet"


@dataclass(frozen=True)
class ComponentPlan(RequiredProof):
    """One component of one node, and what must be proven of it. `change` is None if its state is already as desired.

    `question` shows the change to the component's binary, `question_present` its present files ("": the binary is not asked).
    `needs_drain`: why the node must be drained for this change (empty: it need not), and `instead`, what an operator can do so that it need
    not ("": nothing); `unproven`: what its proof cannot show, in whole sentences. For the record: `effective`, the values before and after,
    and `undoes`, the change that this one undoes. For the re-admission forecast, if they are known: `state`, the node as it is, and
    `pressures`, the node's pressure conditions after the restart (None: as they are). `lasting` are kubeadm's desired values (None:
    absent); `write` as in kubeadm_config.ComponentDesired.
    """

    component: str
    change: Change | None
    _: KW_ONLY
    question: str = ""
    question_present: str = ""
    needs_drain: tuple[str, ...] = ()
    instead: str = ""
    unproven: tuple[str, ...] = ()
    effective: Effective = field(default_factory=Effective)
    undoes: str = ""
    state: KubeletState | None = None
    pressures: tuple[str, ...] | None = None
    lasting: Mapping[ConfigMapPath, Any] = field(default_factory=dict)
    write: Callable[[Mapping[str, Any], Mapping[ConfigMapPath, Any]], Mapping[ConfigMapPath, Any]] = as_given


P = TypeVar("P", bound=ComponentPlan)


@dataclass(frozen=True)
class NodePlan(Generic[P]):
    """One node. `components` are those of its control plane; `outlook` is the effect of the change on the node's pods, shown in the plan.
    `refusals` are shown as text."""

    host: str
    kubelet: Kubelet
    components: Mapping[str, Component]
    planned: tuple[P, ...]
    warnings: tuple[str, ...] = ()
    outlook: str = ""
    refusals: tuple[object, ...] = ()

    @property
    def changing(self) -> list[P]:
        """The components that have a change."""
        return [planned for planned in self.planned if planned.change is not None]

    def source(self, component: str) -> Kubelet | Component:
        """The kubelet, or a component of the node's control plane: its process and its sources."""
        return self.kubelet if component == KUBELET else self.components[component]

    def process(self, component: str) -> Process:
        """The process of the kubelet, or of a component of the node's control plane."""
        return self.source(component).process

    def version(self, component: str) -> str:
        """The name and version of a component, for people."""
        return f"{component} {self.process(component).version or '(version unknown)'}"


# ---- asking the binaries


@dataclass(frozen=True)
class Verdicts:
    """The answers of the binaries of one node, by component: errors `against` its change ("": none; without an answer it is missing),
    errors against its `present` files (for those that refuse the change), the gates `listed` in its --help, and the lines about its
    `flags` there; and what it says of `deprecated` flags. `warnings`: what else a restart of the kubelet brings, by the files' times."""

    against: Mapping[str, str] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    deprecated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def question(plan: NodePlan[Any]) -> str:
    """A script for `sh -s` that shows the candidates to the node's own binaries; "" if there is nothing to ask.

    None of them starts anything: the kubelet gets a value that it must refuse, the others only print their version.
    """
    return ask.script([planned.question for planned in plan.changing if planned.question])


def question_present(plan: NodePlan[Any], against: Mapping[str, str]) -> str:
    """The same for the present files of those components whose binary refused the change (`against`, as in Verdicts)."""
    return ask.script([planned.question_present for planned in plan.changing if any(against.get(name) for name in _names(planned))])


def _names(planned: ComponentPlan) -> tuple[str, str]:
    """The names of its answers."""
    return planned.component, f"{planned.component}{RULES}"


def refused_anyway(plan: NodePlan[Any], component: str, verdicts: Verdicts) -> Refusal | None:
    """The refusal to change a component at all: its binary gave no answer, or refuses its present files. Then the change is not the cause,
    and could not be reverted."""
    if component not in verdicts.against:
        where = "on the node" if component == KUBELET else "in its container"
        return Refusal(
            plan.host,
            f"the node's own {component} could not be asked about this change: it gave no answer",
            f"run the command again; if that does not help, check whether `{component} --version` answers {where}",
        )
    said = verdicts.present.get(component, "")
    if not blame.refuses(said):
        return None
    if component == KUBELET:
        said, where_set = blame.plain(plan.kubelet, said), blame.places(plan.kubelet, said)
    else:
        where_set = places(plan.components[component], said)
    return blame.refusal(plan.host, plan.version(component), said, where_set)
