"""docs/effective.md has the tables of signs, of what has none, of fields without effect and of written paths: as the data has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from roles.engine.kubelet.idle import IDLE
from roles.engine.named_paths import WRITTEN_PATHS
from roles.engine.proof.no_sign import NO_SIGNS
from roles.engine.proof.signs import SIGNS

PAGE = Path(__file__).resolve().parents[3] / "docs/effective.md"
_GROUP = re.compile(r"\(\?:([^()]*)\)(\??)")


def names(pattern: str) -> str:
    """The names of a pattern, as `a`, `b-*`."""
    found = [pattern]
    while any(_GROUP.search(one) for one in found):
        found = [made for one in found for made in _expanded(one)]
    words = [word for one in found for word in one.split("|")]
    plain = [re.sub(r"\.[*+]", "*", word.replace(r"\.", "\0")).replace("\0", ".") for word in words]
    return ", ".join(f"`{word}`" for word in dict.fromkeys(plain))


def _expanded(one: str) -> list[str]:
    """Alternatives of the whole pattern first, since a group belongs to one of them."""
    parts = re.split(r"\|(?![^(]*\))", one)
    if len(parts) > 1:
        return parts
    group = _GROUP.search(one)
    if group is None:
        return [one]
    inside = [*([""] if group[2] else []), *group[1].split("|")]
    return [f"{one[: group.start()]}{word}{one[group.end() :]}" for word in inside]


def programs(of: Sequence[str]) -> str:
    return "all components" if len(of) == 3 else ", ".join(of)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"|{'|'.join(row)}|\n" if row[0] == "---" else f"| {' | '.join(row)} |\n" for row in lines)


def tables() -> dict[str, str]:
    return {
        "signs": table(
            ("of", "setting", "the sign", "if it is missing"),
            [(programs(one.programs), names(one.name), one.sign, one.absent) for one in SIGNS],
        ),
        "no sign": table(("of", "setting", "no sign"), [(programs(one.programs), names(one.name), one.what) for one in NO_SIGNS]),
        "without effect": table(("field", "has no effect if"), [(names(one.fields), one.why) for one in IDLE]),
        "written paths": table(
            ("of", "flag", "what is there"), [(programs(one.programs), f"`{one.flag}`", one.what) for one in WRITTEN_PATHS]
        ),
    }


def rendered(page: str) -> str:
    for name, text in tables().items():
        page = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda found, text=text: f"{found[1]}\n{text}\n{found[2]}", page, flags=re.S
        )  # type: ignore[misc]
    return page


def test_the_page_has_the_tables_of_the_data() -> None:
    page = PAGE.read_text()
    assert all(f"<!-- {name} -->" in page for name in tables())
    assert page == rendered(page), "write tests.unit.proof.test_documented.rendered(page) to docs/effective.md"


def test_names() -> None:
    assert names("shutdown(?:A|B)?|x-(?:c|d)-file") == "`shutdown`, `shutdownA`, `shutdownB`, `x-c-file`, `x-d-file`"
    assert names(r"logging\.options\..*|a-.*") == "`logging.options.*`, `a-*`"
