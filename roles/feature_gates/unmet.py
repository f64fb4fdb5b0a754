"""Pure: the gates that are wanted of one component, held against what it runs with. For looking, without a plan."""

from __future__ import annotations

from collections.abc import Mapping

from roles.api import GateMetric
from roles.feature_gates.model import Desired
from roles.feature_gates.plan import concerned
from roles.observe import Process
from roles.proof import differences


def wanted_of(component: str, process: Process, desired: Desired) -> dict[str, bool | None]:
    """The gates that are wanted of a component, by their bare names: those that the deploy would give it; {} where there is none."""
    return dict(concerned(component, process, desired)) if component in desired.components else {}


def unmet(
    component: str,
    wanted: Mapping[str, bool | None],
    sourced: Mapping[str, bool],
    running: Mapping[str, bool],
    effective: Mapping[str, GateMetric] | None,
) -> list[str]:
    """Why a component does not run with the gates that are wanted of it; [] where it does.

    `sourced` are set by its files and flags, `running` by the command line that it runs with (and by the files it read at its start);
    `effective` are those of its /metrics, the best evidence; None where they could not be read. A gate that is wanted absent (None)
    must be set nowhere; what it then is by default does not matter.
    """
    problems = []
    for name, value in wanted.items():
        found = running.get(name, sourced.get(name))
        if value is None:
            if found is not None:
                problems.append(f"{component}: {name}={_shown(found)} is set, wanted absent")
        elif effective is not None:
            problems += differences(component, {name: value}, effective)
        elif running.get(name) is not value and (value or name in running):
            problems.append(f"{component}: {name} is {_shown(running.get(name))} where it is set, wanted {_shown(value)}")
    return problems


def untold(wanted: Mapping[str, bool | None], running: Mapping[str, bool], effective: Mapping[str, GateMetric] | None) -> list[str]:
    """The gates that are wanted off and set nowhere: whether they are off by default only /metrics tells, which could not be read."""
    return [] if effective is not None else [name for name, value in wanted.items() if value is False and name not in running]


def _shown(value: bool | None) -> str:
    return "absent" if value is None else str(value).lower()
