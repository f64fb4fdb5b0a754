"""The picture in the README: drawn from lines of a terminal, and nothing else."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.lab import picture
from tests.lab.picture import COLUMNS

ROOT = Path(__file__).resolve().parents[3]


def test_what_a_terminal_shows_is_recorded(tmp_path: Path) -> None:
    said = "import os, sys; print(sys.stdout.isatty(), os.get_terminal_size().columns); print('\\033[32mok\\033[0m'); sys.exit(3)"
    code, shown = picture.record([sys.executable, "-c", said], tmp_path)
    assert (code, shown) == (3, [f"True {COLUMNS}", "\033[32mok\033[0m"])


def test_pyinfras_own_lines_are_left_out() -> None:
    shown = ["--> Loading", "x", "", "Plan of run r1: 1 change", "", "[1/1] w1: kubelet: A=true", "    +A", "    [w1]  Ready", ""]
    assert picture.cut(shown) == ["x", "[1/1] w1: kubelet: A=true", "    +A"]


def test_of_the_changes_the_first_plan_and_every_outcome_is_shown() -> None:
    first, second = ["[1/2] w1: kubelet: A=true"], ["[2/2] w2: kubelet: A=true"]
    outcomes = ["  w1 kubelet: confirmed (1 s)", "  w2 kubelet: confirmed (2 s)"]
    table = ["node  component  outcome", "----  ---------  -------", "w1    kubelet    confirmed", "w2    kubelet    confirmed"]
    printed = [*first, "    +A", "", *second, "    +A", "", *first, outcomes[0], "", *second, outcomes[1], "", *table]
    assert picture.cut(printed) == [*first, "    +A", *outcomes, "", table[0], *table[2:]]


def test_a_long_command_goes_on_in_the_next_line() -> None:
    words = ["pyinfra", "inventories/prod.py", *(f"--data key{number}={'x' * 30}" for number in range(4)), "-y"]
    typed = [picture.plain(line) for line in picture.typed(words)]
    assert len(typed) == 2 and all(len(line) <= COLUMNS for line in typed)
    assert "".join(typed).replace(" \\   ", "") == "$ " + " ".join(words)


def test_colours_are_kept_and_the_right_edge_holds() -> None:
    found = list(picture.spans("\033[1mab\033[0m \033[32mok\033[0m " + "x" * COLUMNS))
    assert found[:3] == [("ab", "font-weight:700;"), (" ", ""), ("ok", f"fill:{picture.COLOURS['32']}")]
    assert sum(len(text) for text, _ in found) == COLUMNS and found[-1][0].endswith("…")


def test_it_is_xml_whatever_was_printed() -> None:
    text = picture.svg(['a <b> & "c"', "", "\033[31md\033[0m"], "a & b")
    drawn = ET.fromstring(text)
    assert text.count('<text xml:space="preserve"') == 2
    assert ["".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ['a <b> & "c"', "d"]


def test_the_picture_in_the_readme_is_one_of_these() -> None:
    text = (ROOT / "docs/picture.svg").read_text()
    drawn = ET.fromstring(text)
    shown = "\n".join("".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert re.search(r"w\d +kubelet .*confirmed", shown) and re.search(r"w\d +kubelet .*reverted", shown) and "HALTED" in shown
    # Browsers take the spaces of a text from its own attribute, not from that of a group.
    assert {one.get("{http://www.w3.org/XML/1998/namespace}space") for one in drawn.iter("{http://www.w3.org/2000/svg}text")} == {
        "preserve"
    }
    # daytwo prints outcomes without a colour; a comment is grey, and not printed.
    assert {*re.findall(r"(?<=style=.)fill:#\w+", text)} <= {f"fill:{picture.COLOURS['90']}"}
    assert int(drawn.attrib["viewBox"].split()[3]) <= 640, "half a screen"
    assert not re.search(r"<style|animat|opacity", text), "the first frame shows everything"
    assert len(text) < 60_000 and "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1", "")
