"""Command lines and gate lists as Kubernetes' flags read them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.editing import FormatError, GateChanges, flags


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true(text: str) -> None:
    assert flags.parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false(text: str) -> None:
    assert flags.parse_bool(text) is False


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "tRUE", "y", "", "2", " true"])
def test_no_boolean(text: str) -> None:
    with pytest.raises(FormatError, match="not a boolean"):
        flags.parse_bool(text)


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("", []),
        (",", []),
        ("A=true", [("A", True)]),
        ("A=1,B=F", [("A", True), ("B", False)]),
        (" A = true , B=false ", [("A", True), ("B", False)]),
        ("A=true,", [("A", True)]),
        (",A=true,,B=t", [("A", True), ("B", True)]),
        ("A=true,A=false", [("A", True), ("A", False)]),
        (" kube:A=true", [("A", True)]),
        ("other:A=true", [("other:A", True)]),
    ],
)
def test_gate_lists(text: str, gates: list[tuple[str, bool]]) -> None:
    assert flags.parse_gates(text) == gates


@pytest.mark.parametrize("text", ["A", "A=", "A=yes", "A=true B=true", "A=true;B=true", '"A=true"', "A:true", "A=true, ", " ", "A==true"])
def test_gate_lists_that_the_component_refuses(text: str) -> None:
    with pytest.raises(FormatError):
        flags.parse_gates(text)


def test_an_error_names_the_item_and_the_way_out() -> None:
    with pytest.raises(FormatError) as caught:
        flags.parse_gates("A=true,B=yes")
    assert str(caught.value) == "a feature gate's value is not a boolean: 'B=yes'; write true or false"


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z0-9]{0,12}", fullmatch=True), st.booleans()))
def test_what_is_written_is_read_back(gates: dict[str, bool]) -> None:
    assert dict(flags.parse_gates(flags.written(gates))) == gates


@pytest.mark.parametrize(
    ("argv", "gates"),
    [
        (["kubelet"], {}),
        (["kubelet", "--feature-gates=A=true"], {"A": True}),
        (["kubelet", "--feature-gates", "A=true,B=0"], {"A": True, "B": False}),
        (["kubelet", "--feature_gates=A=true"], {"A": True}),
        (["kubelet", "--feature-gates=A=true", "--v=2", "--feature-gates=A=false,B=1"], {"A": False, "B": True}),
        (["kubelet", "--", "--feature-gates=A=true"], {}),
        (["kubelet", "-feature-gates=A=true"], {}),
        (["kubelet", "--feature-gates-not=A=true"], {}),
        (["kubelet", "--feature-gates="], {}),
    ],
)
def test_effective_gates(argv: list[str], gates: dict[str, bool]) -> None:
    assert flags.effective_gates(argv) == gates
    assert "--feature-gates" not in " ".join(flags.without_gates(argv)).split("--feature-gates-not")[0].split(" -- ")[0]


def test_a_flag_without_its_value_is_refused() -> None:
    with pytest.raises(FormatError, match="last word"):
        flags.effective_gates(["kubelet", "--feature-gates"])


def test_without_gates_takes_both_words_out() -> None:
    assert flags.without_gates(["k", "--feature-gates", "A=true", "--v=2", "--feature_gates=B=true", "x"]) == ["k", "--v=2", "x"]


def test_flag_values() -> None:
    argv = ["kubelet", "--config=/a", "--v", "2", "--config", "/b", "--node_ip=1", "--", "--config=/c"]
    assert flags.flag_values(argv, "config") == ["/a", "/b"]
    assert flags.last_flag(argv, "config") == "/b"
    assert flags.last_flag(argv, "node-ip") == "1"
    assert flags.last_flag(argv, "cluster-dns") is None


def test_a_switch_never_takes_the_next_word() -> None:
    argv = ["kubelet", "--fail-swap-on", "--v=2", "--fail_swap_on=F", "--fail-swap-on", "false"]
    assert flags.flag_values(argv, "fail-swap-on", switch=True) == ["true", "F", "true"]
    assert flags.last_flag(argv, "fail-swap-on", switch=True) == "true"
    assert flags.without(argv, "fail-swap-on", switch=True) == ["kubelet", "--v=2", "false"]
    assert flags.last_flag(["kubelet", "--config"], "config") is None


def test_set_to_wants_every_other_word_as_before() -> None:
    before = ["kubelet", "--max-pods=5", "--v=2", "--max-pods", "6"]
    assert flags.set_to(before, ["kubelet", "--v=2", "--max-pods", "7"], "max-pods", ("7",))
    assert flags.set_to(before, ["kubelet", "--v=2"], "max-pods", None)
    assert not flags.set_to(before, ["kubelet", "--v=2"], "max-pods", ("7",))
    assert not flags.set_to(before, ["kubelet", "--max-pods=6", "--v=2", "--max-pods=7"], "max-pods", ("7",))
    assert not flags.set_to(before, ["kubelet", "--v=3", "--max-pods=7"], "max-pods", ("7",))
    assert not flags.set_to(before, before, "max-pods", None)


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (["G=true"], {"G": False}, ["G=false"]),
        (["G=1,F=0"], {"G": True, "F": False}, ["G=1,F=0"]),
        (["G=t,F=0"], {"G": False, "F": True}, ["G=false,F=true"]),
        # The last place is the one that counts.
        (["G=true,G=true", "G=true"], {"G": False}, ["G=true,G=true", "G=false"]),
        (["G=true,F=true,E=true"], {"G": None}, ["F=true,E=true"]),
        (["G=true,F=true,E=true"], {"F": None}, ["G=true,E=true"]),
        (["G=true,F=true,E=true"], {"E": None}, ["G=true,F=true"]),
        (["G=true,F=true,E=true"], {"F": None, "E": None}, ["G=true"]),
        (["G=true,F=true", "G=true"], {"G": None}, ["F=true"]),
        (["G=true", "F=true"], {"G": None, "F": None}, []),
        (["G=true"], {"G": None, "F": True}, ["F=true"]),
        (["F=true,G=true"], {"G": None, "E": True}, ["F=true,E=true"]),
        # New gates keep the order they are asked in; they go to the end of the last list that has any.
        ([], {"Z": True, "A": False}, ["Z=true,A=false"]),
        (["F=true", ""], {"G": True}, ["F=true,G=true", ""]),
        (["", ""], {"G": True}, ["", "G=true"]),
        (["F=true,", "G=0"], {"G": None, "A": True}, ["F=true,", "A=true"]),
        # Of a list that stays as it is every character stays.
        (["F = true, E=1", "G=1"], {"G": False}, ["F = true, E=1", "G=false"]),
        (["F = true, E=1"], {"G": True}, ["F=true,E=1,G=true"]),
        (["kube:A=1"], {"A": True}, ["kube:A=1"]),
        (["kube:A=1"], {"A": False}, ["kube:A=false"]),
        (["kube:A=1"], {"B": False}, ["kube:A=1,kube:B=false"]),
        (["kube:A=1"], {"A": None, "B": True}, ["kube:B=true"]),
    ],
)
def test_gates_in_the_values_of_the_flag(before: list[str], changes: GateChanges, after: list[str]) -> None:
    assert [*flags.with_gates(before, changes)] == after


def test_names_with_and_without_the_prefix_are_refused() -> None:
    with pytest.raises(FormatError, match="are mixed"):
        flags.effective_gates(["kube-apiserver", "--feature-gates=kube:A=true", "--feature-gates=B=true"])


KINDS = {"max-pods": "int32", "fail-swap-on": "bool", "cluster-dns": "list", "eviction-hard": "map", "v": "string"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--max-pods 5 --v=2", "--v 2 --max-pods=5"),
        ("--max_pods=5", "--max-pods=5"),
        ("--max-pods=4 --max-pods=5", "--max-pods=5"),
        ("--cluster-dns=1.1.1.1 --cluster-dns=2.2.2.2", "--cluster-dns=1.1.1.1,2.2.2.2"),
        ("--eviction-hard=a<1,b<2", "--eviction-hard=b<2 --eviction-hard=a<1"),
        ("--eviction-hard=a<0 --eviction-hard=a<1", "--eviction-hard=a<1"),
        ("--feature-gates=A=true --feature-gates=B=0", "--feature-gates=B=false,A=1"),
        ("--fail-swap-on", "--fail-swap-on=true"),
        ("--fail-swap-on=F", "--fail-swap-on=false"),
        ("-v=2", "--v=2"),
        ("--odd=1 --odd=2", "--odd 1 --odd 2"),
    ],
)
def test_the_same_words_in_another_order_or_spelling(one: str, other: str) -> None:
    assert not flags.differences(["k", *one.split()], ["k", *other.split()], KINDS)
    assert not flags.differences(["k", *other.split()], ["k", *one.split()], KINDS)


@pytest.mark.parametrize(
    ("running", "planned", "told"),
    [
        ("--v=9", "", ["no --v (now --v=9)"]),
        ("", "--max-pods=5", ["--max-pods=5 (now no --max-pods)"]),
        ("--max-pods=5 --max-pods=4", "--max-pods=5", ["--max-pods=5 (now --max-pods=5 --max-pods=4)"]),
        ("--cluster-dns=1,2", "--cluster-dns=2,1", ["--cluster-dns=2,1 (now --cluster-dns=1,2)"]),
        ("--fail-swap-on=false", "--fail-swap-on", ["--fail-swap-on=true (now --fail-swap-on=false)"]),
        ("--eviction-hard=", "", ["no --eviction-hard (now --eviction-hard=)"]),
        # Of a flag that nobody knows, each of its values may count.
        ("--odd=1 --odd=2", "--odd=2", ["--odd=2 (now --odd=1 --odd=2)"]),
        ("--fail-swap-on false", "--fail-swap-on", ["the words (none) (now false)"]),
        ("-- --v=2", "", ["the words (none) (now --v=2)"]),
    ],
)
def test_other_words_are_told_flag_by_flag(running: str, planned: str, told: list[str]) -> None:
    assert [*map(str, flags.differences(["k", *running.split()], ["k", *planned.split()], KINDS))] == told


def test_another_program_is_a_difference() -> None:
    assert [*map(str, flags.differences(["/usr/bin/kubelet"], ["/opt/kubelet"]))] == ["the program /opt/kubelet (now /usr/bin/kubelet)"]
    assert not flags.differences(["kubelet"], ["/usr/bin/kubelet"])


_words = st.lists(
    st.sampled_from(["--max-pods=5", "--v=2", "--odd=1", "--cluster-dns=1", "--fail-swap-on", "--eviction-hard=a<1"]), unique=True
)


@given(_words, st.randoms(use_true_random=False))
def test_order_and_spelling_never_count(words: list[str], random: Any) -> None:
    other = [part for word in random.sample(words, len(words)) for part in (word.split("=") if random.random() < 0.5 else [word])]
    assert not flags.differences(["k", *words], ["k", *other], KINDS)
    for index in range(len(words)):
        assert flags.differences(["k", *words[:index], *words[index + 1 :]], ["k", *other], KINDS)
