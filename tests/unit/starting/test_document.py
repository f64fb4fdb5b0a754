"""The page about starts has exactly what the tables have: `python -m tests.unit.starting.test_document` writes its generated parts."""

from __future__ import annotations

import re
from pathlib import Path

from roles.engine.kubelet import schema
from roles.engine.starting import FILES, NEW_PODS, TUNABLES

PAGE = Path(__file__).resolve().parents[3] / "docs/before-a-restart.md"


def parts() -> dict[str, str]:
    """The generated parts of the page, by their mark."""
    tunables = ["| kernel tunable | value | meaning |", "|---|---|---|"]
    tunables += [f"| `{one.name}` | {one.value} | {one.meaning} |" for one in TUNABLES]
    files = ["| of | field or flag | what it must be | needed for |", "|---|---|---|---|"]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in FILES:
        dated = ", not expired" if row.dates else ""
        groups.setdefault((row.component, f"{row.holds}{dated}", row.stops), []).append(f"`{row.name}`")
    files += [f"| {component} | {', '.join(names)} | {holds} | {stops} |" for (component, holds, stops), names in groups.items()]
    new_pods = ", ".join(f"`{name}`" for name in sorted(NEW_PODS))
    return {"new-pods": f"These are: {new_pods}.", "tunables": "\n".join(tunables), "files": "\n".join(files)}


def written(page: str) -> str:
    for mark, text in parts().items():
        page = re.sub(
            rf"<!-- {mark} -->\n(.*?)(?=\n\n|\n?\Z)", lambda _, mark=mark, text=text: f"<!-- {mark} -->\n{text}", page, flags=re.DOTALL
        )
    return page


def test_the_page_has_the_tables() -> None:
    page = PAGE.read_text()
    for mark, text in parts().items():
        assert f"<!-- {mark} -->\n{text}\n" in page, f"python -m tests.unit.starting.test_document ({mark})"


def test_the_tables_have_names_of_kubernetes() -> None:
    fields, flags = schema.fields(36), {**schema.flags(32), **schema.flags(36)}
    assert {name for name in NEW_PODS if name not in fields} == set()
    own = [row for row in FILES if row.component == "kubelet"]
    assert {row.field for row in own if row.field and row.field not in fields} == set()
    # Removed in 1.34.
    assert {row.flag for row in own if row.flag and row.flag not in flags} <= {"cloud-config"}


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
