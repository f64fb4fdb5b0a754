"""What delays a shutdown of a node: logind's files in systemd's order, and its locks."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from roles.engine.node.logind import Delay, parse_inhibitor, parse_logind, seconds_of
from roles.engine.scripts import templates

MAIN = "/etc/systemd/logind.conf"


def delay(*files: tuple[str, str]) -> Delay:
    return parse_logind("yes", "yes", "".join(f"= {path}\n[Login]\n{line}\n" for path, line in files)).delay()


def test_the_file_that_wins() -> None:
    """logind.conf(5): drop-ins beat the main file, the name that sorts last wins, and of one name the directory in /etc."""
    assert delay() == Delay(5.0)
    assert delay((MAIN, "InhibitDelayMaxSec=9")) == Delay(9.0, MAIN)
    vendor = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"
    kubelet = "/etc/systemd/logind.conf.d/99-kubelet.conf"
    assert delay((kubelet, "InhibitDelayMaxSec=120"), (vendor, "InhibitDelayMaxSec=30"), (MAIN, "InhibitDelayMaxSec=9")) == Delay(
        30, vendor
    )
    own = vendor.replace("/usr/lib", "/etc")
    assert delay((vendor, "InhibitDelayMaxSec=30"), (own, "InhibitDelayMaxSec=2min 1s")) == Delay(121, own)
    # A link to /dev/null in /etc hides the vendor's file; so does one without the setting.
    assert delay((vendor, "InhibitDelayMaxSec=30"), (own, ""), (kubelet, "InhibitDelayMaxSec=120")) == Delay(120, kubelet)
    assert (
        delay(("/run/systemd/logind.conf", "InhibitDelayMaxSec=7"), ("/usr/lib/systemd/logind.conf", "InhibitDelayMaxSec=8")).seconds == 7
    )


def test_only_the_section_and_the_value_that_systemd_reads() -> None:
    text = f"= {MAIN}\nInhibitDelayMaxSec=1\n[Other]\nInhibitDelayMaxSec=2\n[Login]\n#InhibitDelayMaxSec=3\n InhibitDelayMaxSec = 4 \nInhibitDelayMaxSec=x\n"
    assert parse_logind("yes", "yes", text).delay() == Delay(4, MAIN)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("1.5min", 90), ("2h 3s", 7203), ("500ms", 0.5), ("infinity", math.inf), ("", None), ("3 x", None)]
)
def test_time_spans(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("bus", "unit", "words"), [("yes", "yes", ""), ("no", "yes", "D-Bus"), ("yes", "no", "no systemd-logind"), ("yes", "masked", "masked")]
)
def test_a_node_where_nobody_can_have_a_lock(bus: str, unit: str, words: str) -> None:
    problem = parse_logind(bus, unit, "").problem
    assert words in problem and bool(problem) == bool(words)


def test_whose_lock_it_is() -> None:
    assert parse_inhibitor("WHAT=sleep:shutdown\nWHO=kubelet\nMODE=delay\nPID=7\n").is_kubelets
    assert not parse_inhibitor("WHAT=sleep\nWHO=kubelet\nMODE=delay\nPID=7\n").is_kubelets
    assert parse_inhibitor("WHAT=shutdown\nMODE=block-weak\n").blocks_shutdown and not parse_inhibitor("").delays_shutdown


def test_the_node_prints_its_files(tmp_path: Path) -> None:
    for path, text in (
        (MAIN, "[Login]\n#x\nKillUserProcesses=no\nInhibitDelayMaxSec=9"),
        ("/etc/systemd/logind.conf.d/a b.conf", "[Login]\n"),
    ):
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text)
    (tmp_path / "run/systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "run/systemd/logind.conf.d/z.conf").symlink_to("/dev/null")
    script = templates().get_template("logind.sh.j2").render()
    for place in ("/etc/", "/run/", "/usr/", "/lib/"):
        script = script.replace(f" {place}", f" {tmp_path}{place}")
    script = f"text() {{ printf '%s' \"$1\"; }}\n{script}"
    told = subprocess.run(["sh", "-s"], input=script, text=True, capture_output=True, check=True).stdout.replace(str(tmp_path), "")
    expected = (
        f"logind no no = {MAIN}\n[Login]\nInhibitDelayMaxSec=9\n= /etc/systemd/logind.conf.d/a b.conf\n[Login]\n"
        "= /run/systemd/logind.conf.d/z.conf=\n"
    )
    assert told == expected
