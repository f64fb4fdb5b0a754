"""tests/durations.json."""

from __future__ import annotations

import json
from pathlib import Path

from tests.lanes.durations import UNKNOWN, Durations

ROOT = Path(__file__).resolve().parents[3]


def test_what_a_unit_is_likely_to_take() -> None:
    known = Durations({"m.py::a": 10, "m.py::b": 20}, {"n.py": 3})
    assert known.unit("m.py", "small", ["m.py::a", "m.py::b"]) == 30
    assert known.unit("m.py", "small", ["m.py::a", "m.py::b", "m.py::new"]) == 45, "a new test is like the others"
    assert known.unit("m.py", "wide", ["m.py::w"]) == UNKNOWN
    assert known.unit("n.py", "none", ["n.py::x"]) == 3 and known.unit("o.py", "none", []) == UNKNOWN


def test_a_run_updates_what_it_covers() -> None:
    known = Durations({"m.py::a": 10, "m.py::b": 20, "n.py::slow": 5}, {"n.py": 6, "o.py": 7})
    took = {"m.py::a": 12.0, "n.py::slow": 0.5, "n.py::x": 0.25, "o.py::y": 1.5}
    shapes = {"m.py::a": "small", "m.py::b": "small", "n.py::slow": "none", "n.py::x": "none", "o.py::y": "none"}
    known.record(took, shapes, {"n.py"})
    assert known.tests == {"m.py::a": 12, "m.py::b": 20, "o.py::y": 1.5}
    assert known.modules == {"n.py": 0.75, "o.py": 7}, "of o.py not all was run"


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    assert Durations.read(path) == Durations()
    (tmp_path / "m.py").touch()
    known = Durations({"m.py::b": 1.04, "m.py::a": 2.06, "gone.py::x": 9}, {"m.py": 3, "gone.py": 4})
    known.forget(tmp_path)
    known.write(path)
    assert json.loads(path.read_text()) == {"tests": {"m.py::a": 2.1, "m.py::b": 1.0}, "modules": {"m.py": 3}}
    text = path.read_text()
    assert text.index("::a") < text.index("::b") and text.endswith("}\n")
    Durations.read(path).write(path)
    assert path.read_text() == text


def test_the_projects_own_file_can_be_read() -> None:
    Durations.read(ROOT / "tests/durations.json")
