"""The picture in the README: drawn from lines of a terminal, and nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.lab import picture

ROOT = Path(__file__).resolve().parents[3]


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
    # Each cell has its own x: no font and no collapsed space moves a column.
    assert not re.search(r"<tspan[^>]*>[^<]*  ", text) and text.count("<tspan") == text.count("<tspan x=")
    assert set(re.findall(r"fill:(#\w+)", text)) <= {picture.COLOURS[code] for code in ("31", "32", "33", "36", "90")}
    for word, colour in (("confirmed", "32"), ("reverted", "31"), ("HALTED", "31"), ("unknown", "33")):
        assert re.search(rf'style="fill:{picture.COLOURS[colour]}">{word}<', text), word
    assert int(drawn.attrib["viewBox"].split()[3]) <= 660, "half a screen"
    assert not re.search(r"<style|animat|opacity", text), "the first frame shows everything"
    assert len(text) < 60_000 and "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1", "")


def test_a_cell_has_the_x_of_its_column() -> None:
    assert "".join(picture.placed("a   \033[32mok c\033[0m  d")) == (
        '<tspan x="16.00">a</tspan>   <tspan x="47.32" style="fill:#7ee787">ok c</tspan>  <tspan x="94.30">d</tspan>'
    )
