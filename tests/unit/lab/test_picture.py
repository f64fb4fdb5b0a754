"""The picture in the README: drawn from lines of a terminal, and nothing else."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.lab import picture
from tests.lab.picture import COLUMNS, Line

ROOT = Path(__file__).resolve().parents[3]


def lines(*texts: str) -> list[Line]:
    return [Line(float(number), text) for number, text in enumerate(texts)]


def texts(found: list[Line]) -> list[str]:
    return [line.text for line in found]


def test_what_a_terminal_shows_is_recorded(tmp_path: Path) -> None:
    said = "import os, sys; print(sys.stdout.isatty(), os.get_terminal_size().columns); print('\\033[32mok\\033[0m'); sys.exit(3)"
    code, shown = picture.record([sys.executable, "-c", said], tmp_path)
    assert (code, texts(shown)) == (3, [f"True {COLUMNS}", "\033[32mok\033[0m"])


def test_pyinfras_own_lines_are_left_out() -> None:
    shown = lines("--> Loading", "x", "", "Plan of run r1: 1 changes", "", "", "[1/1] w1: kubelet: A=true", "    +A", "    [w1]  Ready", "")
    assert texts(picture.cut(shown)) == ["x", "", "Plan of run r1: 1 changes", "", "[1/1] w1: kubelet: A=true", "    +A"]


def test_colours_are_kept_and_the_right_edge_holds() -> None:
    found = list(picture.spans("\033[1mab\033[0m \033[32mok\033[0m " + "x" * COLUMNS))
    assert found[:3] == [("ab", "font-weight:700;"), (" ", ""), ("ok", f"fill:{picture.COLOURS['32']}")]
    assert sum(len(text) for text, _ in found) == COLUMNS and found[-1][0].endswith("…")


def test_it_is_xml_whatever_was_printed() -> None:
    drawn = ET.fromstring(picture.svg(lines('a <b> & "c"', "", "\033[31md\033[0m"), "a & b"))
    assert ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ['a <b> & "c"', "d"]


def test_the_picture_in_the_readme_is_one_of_these() -> None:
    text = (ROOT / "docs/picture.svg").read_text()
    drawn = ET.fromstring(text)
    shown = "\n".join("".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert re.search(r"w\d +kubelet .*confirmed", shown) and re.search(r"w\d +kubelet .*reverted", shown) and "HALTED" in shown
    assert len(text) < 60_000 and "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1", "")
