"""Keys that nobody reads: which are told, and what was meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.bridge import pyinfra_keys
from roles.engine.inputs import registry
from roles.engine.inputs.unknown_keys import unknown
from roles.engine.runs.data_keys import refused_keys, wider_than_asked


def told(*given: str, own: tuple[str, ...] = ()) -> dict[str, str]:
    return unknown(given, registry.names(), pyinfra_keys(), own)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("feature_gate", "feature_gates"),
        ("featureGates", "feature_gates"),
        ("feature-gates", "feature_gates"),
        ("evictionHard", "eviction_hard"),
        ("priority_clases", "priority_classes"),
        ("max_unavail", "max_unavailable"),
        ("confirm-timeout", "confirm_timeout"),
        ("ssh_usr", "ssh_user"),
        ("sudo", "_sudo"),
        ("_sduo", "_sudo"),
        ("_sudo_pasword", "_sudo_password"),
        ("own_key", "own_keys"),
        ("move_flag", "move_flags"),
        ("allow_eviction", "allow_evictions"),
        ("max_unavailble", "max_unavailable"),
        ("target_versoin", "target_version"),
        ("kubelet_cofig", "kubelet_config"),
        ("kubeletConfig", "kubelet_config"),
        ("kubelet-config", "kubelet_config"),
        ("evicton_hard", "eviction_hard"),
        ("eviction_hrad", "eviction_hard"),
        ("eviction-soft", "eviction_soft"),
        ("eviction_min_reclaim", "eviction_minimum_reclaim"),
    ],
)
def test_a_slip_of_the_pen_is_told_with_what_was_meant(key: str, meant: str) -> None:
    assert told(key) == {key: f"{key} is not a key of daytwo's data; did you mean {meant}?"}


@pytest.mark.parametrize("key", ["haproxy_maxconn", "eviction_qqqqqqqqqqqqqqqqqqqqqqq"])
def test_what_is_near_nothing_is_told_too(key: str) -> None:
    assert told(key) == {key: f"{key} is not a key of daytwo's data; no deploy reads it"}


def test_keys_of_other_deploys_and_of_pyinfra_are_no_strangers() -> None:
    assert told(*registry.names(), *pyinfra_keys()) == {}
    connecting = {"ssh_hostname", "ssh_port", "ssh_user", "ssh_key", "ssh_config_file", "ssh_known_hosts_file", "docker_identifier"}
    assert connecting | {"_sudo", "_sudo_user", "_sudo_password", "_su_user", "_env", "_shell_executable"} <= pyinfra_keys()
    assert "name" not in pyinfra_keys(), "it is an argument of operations, and no data"


def test_no_key_of_daytwo_is_taken_for_ones_own() -> None:
    assert not [name for name in registry.names() if name.startswith(("x_", "_")) or name in pyinfra_keys()]


@pytest.mark.parametrize("key", ["x_feature_gates", "x_", "_base", "_helper_of_mine"])
def test_ones_own_keys_by_their_beginning(key: str) -> None:
    assert told(key) == {}


def test_ones_own_keys_by_name_and_pattern() -> None:
    assert told("rack", "dns_zone", "dns_server", own=("rack", "dns_*")) == {}
    assert set(told("rack", "dnszone", own=("dns_*",))) == {"rack", "dnszone"}


def test_a_pattern_does_not_hide_a_slip_and_a_whole_name_does() -> None:
    assert set(told("feature_gate", "rack", own=("*",))) == {"feature_gate"}
    assert told("feature_gate", own=("feature_gate",)) == {}


@given(st.sets(st.text(min_size=1, max_size=12)))
def test_each_key_that_is_not_known_is_told_once_and_nothing_else(given: set[str]) -> None:
    found = told(*given)
    known = {*registry.names(), *pyinfra_keys()}
    expected = {key for key in given if key not in known and not key.startswith("x_")}
    # One that begins with _ is told only where it is a slip.
    assert {key for key in expected if not key.startswith("_")} <= set(found) <= expected


def remote(name: str, origin: str = "group_data/all.py", **data: Any) -> Any:
    return SimpleNamespace(name=name, data=data.get, data_keys=set(data), data_origin=lambda key: origin)


def test_a_refusal_names_the_hosts_the_place_and_the_way_out() -> None:
    remotes = [remote(f"w{number}", eviction_hrad="x", feature_gates="A=true") for number in range(4)]
    found = [str(refusal) for refusal in refused_keys([*remotes, remote("cp1", "--data", eviction_hrad="x")], pyinfra_keys())]
    assert [text.partition(";")[0] for text in found] == [
        "w0 and 3 more: group_data/all.py: eviction_hrad is not a key of daytwo's data",
        "cp1: --data: eviction_hrad is not a key of daytwo's data",
    ]
    assert all("did you mean eviction_hard?; docs/reference/data.md has all keys; your own must begin with x_" in text for text in found)


def test_an_old_name_in_the_inventory_that_chose_a_part_of_the_work_is_refused() -> None:
    """Unread, all budgets would change instead of one."""
    of_hosts: Any = SimpleNamespace(inventory=[remote("w1", only="shop/b"), remote("w2", only="shop/b"), remote("w3")], given=frozenset())
    (refusal,) = wider_than_asked(of_hosts, "disruption_budgets")
    assert str(refusal) == (
        "w1, w2: group_data/all.py: only: disruption_budgets.py does not read it: there its name is only_objects; rename it; one that"
        " chooses hosts for other deploys belongs into their --data only=..."
    )
    assert wider_than_asked(of_hosts, "kubelet_config") == [], "there it chooses hosts"
    given: Any = SimpleNamespace(inventory=of_hosts.inventory, given=frozenset({"only"}))
    assert wider_than_asked(given, "disruption_budgets") == [], "of --data it is refused as a key that is not read"


def test_own_keys_as_text_and_as_list_and_as_nonsense() -> None:
    assert refused_keys([remote("w1", rack=5, own_keys="rack,dns_*"), remote("w2", rack=5, own_keys=["rack"])], pyinfra_keys()) == []
    assert [str(found) for found in refused_keys([remote("w1", own_keys=True)], pyinfra_keys())] == [
        "w1: own_keys: true is not a list of names; separate them with commas: w1,w2"
    ]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page with the names of all keys, which is another one for this test."""
    monkeypatch.setattr(registry, "SCHEMA", tmp_path / "data.schema.json")
    registry.written_readers.cache_clear()
    yield tmp_path / "data.schema.json"
    registry.written_readers.cache_clear()


@pytest.mark.parametrize("text", ['{"properties": {"soak": {}}}', "{", "[]", "{}", None])
def test_the_models_have_the_say_where_the_page_is_old_broken_or_not_there(page: Path, text: str | None) -> None:
    if text is not None:
        page.write_text(text)
    assert refused_keys([remote("w1", feature_gates="A=true", soak=5)], pyinfra_keys()) == []
    assert [found.host for found in refused_keys([remote("w2", feature_gate="A=true")], pyinfra_keys())] == ["w2"]


def test_keys_that_the_page_knows_take_no_import_of_all_models() -> None:
    """Which takes longer than all else that a deploy does before its first look."""
    script = (
        "import sys; from types import SimpleNamespace; from roles.engine.inputs import registry; from roles.engine.runs.data_keys import refused_keys, wider_than_asked\n"
        "data = {'feature_gates': 'A=true', 'soak': 5, 'x_rack': 1}\n"
        "assert refused_keys([SimpleNamespace(name='w1', data=data.get, data_keys=set(data))], frozenset()) == []\n"
        "print(sorted({name.split('.')[1] for name in sys.modules if name.startswith('roles.')}))"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "['engine']"
