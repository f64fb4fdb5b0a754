"""The report of a run on API objects: the outcome of each object."""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine import table
from roles.engine.object_runs.run import ObjectRun
from roles.engine.runs import end_by_consent
from roles.engine.voice import show, show_lines


def show_objects(run: ObjectRun, rest: Sequence[Sequence[str]], rows: Sequence[Sequence[str]] | None = None) -> None:
    """The outcome of each object; `rest` are the rows of objects that the run does not change; `rows` replaces those of the steps."""
    if rows is None:
        rows = [
            [step.name, step.action, step.outcome, f"{step.seconds:.0f}" if step.seconds else "-", table.short(step.how or step.why) or "-"]
            for step in run.steps
        ]
    show_lines("\n" + table.render(["object", "action", "outcome", "s", "proof"], [*rows, *rest]))
    end_by_consent((step.how for step in run.steps), run.consents)


def show_objects_end(
    run: ObjectRun,
    rest: Sequence[Sequence[str]],
    more: Sequence[str] = (),
    rows: Sequence[Sequence[str]] | None = None,
) -> None:
    """The table, then `more`, warnings, and why the run halted."""
    show_objects(run, rest, rows)
    for text in (*more, *(f"WARNING: {text}" for _, text in run.warnings)):
        show(f"\n{text}")
    show(f"\nRecord of the run: {run.record.path}")
    done = [step.name for step in run.steps if step.outcome == run.success]
    if not run.halted:
        return
    show(f"\nHALTED: {run.halted}")
    if untouched := [step.name for step in run.steps if step.outcome == "not started"]:
        show(f"Not touched: {', '.join(untouched)}.")
    if done:
        show(f"Done and proven: {', '.join(done)}.")
