"""Which installed kernel is newer than the running one, in the order of the node's distribution."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.engine.node import judge_kernels
from roles.engine.node.kernels import Kernels, debian_order, rpm_order

DEBIAN, UBUNTU, RED_HAT = "debian", 'ubuntu\n"debian"', '"rocky"\n"rhel centos fedora"'


@pytest.mark.parametrize(
    ("family", "running", "installed", "newest", "others"),
    [
        (DEBIAN, "6.1.0-9-amd64", ["6.1.0-9-amd64", "6.1.0-18-amd64", "6.1.0-10-amd64"], "6.1.0-18-amd64", ()),
        (DEBIAN, "6.1.0-18-amd64", ["6.1.0-9-amd64", "6.1.0-18-amd64"], "", ()),
        # The running one was removed already.
        (DEBIAN, "6.1.0-9-amd64", ["6.1.0-18-amd64"], "6.1.0-18-amd64", ()),
        (DEBIAN, "6.12.38+deb13-amd64", ["6.12.48+deb13-amd64", "6.12.48+deb13+1-amd64"], "6.12.48+deb13+1-amd64", ()),
        (DEBIAN, "6.1.0-18-amd64", ["6.1.0-20-cloud-amd64", "6.1.0-19-rt-amd64"], "", ("6.1.0-19-rt-amd64", "6.1.0-20-cloud-amd64")),
        (DEBIAN, "6.12.0~rc3-amd64", ["6.12.0-amd64"], "6.12.0-amd64", ()),
        (UBUNTU, "5.15.0-91-generic", ["5.15.0-101-generic", "6.5.0-14-lowlatency"], "5.15.0-101-generic", ("6.5.0-14-lowlatency",)),
        (RED_HAT, "5.14.0-362.8.1.el9_3.x86_64", ["5.14.0-362.13.1.el9_3.x86_64"], "5.14.0-362.13.1.el9_3.x86_64", ()),
        (RED_HAT, "5.14.0-427.el9.x86_64", ["5.14.0-362.13.1.el9_3.x86_64"], "", ()),
        (RED_HAT, "5.14.0-362.8.1.el9_3.x86_64", ["5.14.0-427.el9.x86_64+rt"], "", ("5.14.0-427.el9.x86_64+rt",)),
        (RED_HAT, "4.18.0-513.el8.x86_64", ["5.15.0-200.131.27.el8uek.x86_64"], "", ("5.15.0-200.131.27.el8uek.x86_64",)),
        # A kernel of one's own has no order that anybody knows.
        (DEBIAN, "6.6.0", ["6.1.0-18-amd64"], "", ("6.1.0-18-amd64",)),
        (DEBIAN, "6.1.0-18-amd64", ["weird", ""], "", ("", "weird")),
        (DEBIAN, "6.1.0-18-amd64", [], "", ()),
    ],
)
def test_the_newest_kernel_of_the_same_flavour(
    family: str, running: str, installed: list[str], newest: str, others: tuple[str, ...]
) -> None:
    assert judge_kernels(running, installed, family) == Kernels(newest, others)


VERSIONS = st.text("0123456789ab.~+-", max_size=8).map(lambda text: "1" + text)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not installed")
@settings(max_examples=120, deadline=None)
@given(VERSIONS.map(lambda text: text.replace("-", ".")), VERSIONS.map(lambda text: text.replace("-", ".")))
def test_debian_versions_are_in_the_order_of_dpkg(one: str, other: str) -> None:
    def dpkg(relation: str) -> bool:
        return subprocess.run(["dpkg", "--compare-versions", one, relation, other], check=False, stderr=subprocess.DEVNULL).returncode == 0

    assert (debian_order(one) > debian_order(other), debian_order(one) < debian_order(other)) == (dpkg("gt"), dpkg("lt"))


@pytest.mark.parametrize(
    ("one", "other", "sign"),
    # From rpm's own tests/rpmvercmp.at.
    [
        ("1.0", "1.0", 0), ("1.0", "2.0", -1), ("2.0", "1.0", 1), ("2.0.1", "2.0.1", 0), ("2.0", "2.0.1", -1), ("2.0.1a", "2.0.1", 1),
        ("5.5p1", "5.5p2", -1), ("5.5p10", "5.5p1", 1), ("10xyz", "10.1xyz", -1), ("xyz10", "xyz10.1", -1), ("xyz.4", "8", -1),
        ("6.0.rc1", "6.0", 1), ("10b2", "10a1", 1), ("1.0a", "1.0aa", -1), ("10.0001", "10.0039", -1), ("20101121", "20101122", -1),
        ("2_0", "2.0", 0), ("1.0~rc1", "1.0", -1), ("1.0~rc1", "1.0~rc2", -1), ("1.0~rc1~git123", "1.0~rc1", -1), ("1.0^", "1.0", 1),
        ("1.0^git1", "1.0", 1), ("1.0^git1", "1.01", -1), ("1.0^20160101", "1.0.1", -1), ("1.0~rc1^git1", "1.0~rc1", 1),
        ("1.0-2", "1.0-10", -1), ("1.0-1", "1.1-0", -1),
    ],
)  # fmt: skip
def test_red_hats_versions_are_in_the_order_of_rpm(one: str, other: str, sign: int) -> None:
    assert (rpm_order(one) > rpm_order(other)) - (rpm_order(one) < rpm_order(other)) == sign
