"""Any flag of a command line as a list of values, as pflag reads it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.editing import FormatError, any_flag

ARGV = ["kube-apiserver", "--v=2", "--issuer=a", "--profiling", "--issuer=b", "--port", "7"]


def test_the_values_of_a_flag_are_all_that_are_given() -> None:
    assert any_flag.given(ARGV, "issuer") == ("a", "b")
    assert any_flag.given(ARGV, "port") == ("7",)
    assert any_flag.given(ARGV, "profiling", ("true",)) == ("true",)
    assert any_flag.given(ARGV, "none") is None
    assert any_flag.every(ARGV) == {"v": ("2",), "issuer": ("a", "b"), "profiling": ("true",), "port": ("7",)}


@pytest.mark.parametrize(
    ("now", "wanted", "same"),
    [
        (("true",), ("true",), True),
        (("1",), ("true",), True),
        (("T", "0"), ("false",), True),
        (("nonsense",), ("true",), False),
        (("a,b",), ("a", "b"), True),
        (("a", "b"), ("a", "b"), True),
        (("b", "a"), ("a", "b"), False),
        # Of two values the type of the flag says what they mean; one desired value is written alone.
        (("a", "b"), ("a,b",), False),
        (None, ("a",), False),
        (("a",), None, False),
        (None, None, True),
    ],
)
def test_when_values_mean_the_same(now: any_flag.FlagValues, wanted: any_flag.FlagValues, same: bool) -> None:
    assert any_flag.same(now, wanted) is same


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"v": ("4",)}, ["kube-apiserver", "--v=4", *ARGV[2:]]),
        ({"new": ("x",)}, [*ARGV, "--new=x"]),
        ({"issuer": ("c", "d")}, ["kube-apiserver", "--v=2", "--issuer=c", "--profiling", "--issuer=d", "--port", "7"]),
        ({"issuer": ("c", "d", "e")}, ["kube-apiserver", "--v=2", "--issuer=c", "--profiling", "--issuer=d", "--issuer=e", "--port", "7"]),
        # Of most flags the last one counts, so that is where one value stays.
        ({"issuer": ("c",)}, ["kube-apiserver", "--v=2", "--profiling", "--issuer=c", "--port", "7"]),
        ({"issuer": None}, ["kube-apiserver", "--v=2", "--profiling", "--port", "7"]),
        ({"port": ("8",)}, [*ARGV[:-1], "8"]),
        ({"port": None}, ARGV[:-2]),
        ({"profiling": ("false",)}, ["kube-apiserver", "--v=2", "--issuer=a", "--profiling=false", *ARGV[4:]]),
        ({"profiling": None}, [*ARGV[:3], *ARGV[4:]]),
        ({"profiling": ("true",), "v": ("2",)}, ARGV),
    ],
)
def test_what_a_change_writes(changes: any_flag.FlagChanges, after: list[str]) -> None:
    assert any_flag.change([ARGV[:3], ARGV[3:]], changes) in ([after[:n], after[n:]] for n in range(len(after) + 1))


def test_a_flag_after_a_bare_dash_dash_would_not_be_read() -> None:
    with pytest.raises(FormatError, match="bare `--`"):
        any_flag.change([["kube-apiserver", "--", "x"]], {"v": ("2",)})


def test_a_boolean_with_a_word_behind_it_is_not_guessed() -> None:
    with pytest.raises(FormatError, match="--profiling=VALUE"):
        any_flag.change([["kube-apiserver", "--profiling", "false"]], {"profiling": None})


NAMES = ("alpha", "beta", "gamma")
VALUES = st.text(st.characters(codec="ascii", exclude_characters="\n", categories=("L", "N", "P")), min_size=1).filter(
    lambda v: not v.startswith("-")
)
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.none() | st.lists(VALUES, min_size=1, max_size=3).map(tuple), min_size=1)
WORDS = st.lists(st.one_of(st.builds(lambda n, v: f"--{n}={v}", st.sampled_from((*NAMES, "other")), VALUES), st.just("--switch")))


@given(WORDS, WORDS, CHANGES)
def test_a_change_gives_what_is_wanted_and_keeps_the_rest(command: list[str], args: list[str], changes: any_flag.FlagChanges) -> None:
    parts = [["program", *command], args]
    after = any_flag.change(parts, changes)
    argv, old = [*after[0], *after[1]], ["program", *command, *args]
    for name in NAMES:
        found = any_flag.given(argv, name, changes.get(name))
        assert any_flag.same(found, changes[name]) if name in changes else found == any_flag.given(old, name)
    others = [word for word in old if not word.startswith(tuple(f"--{name}=" for name in changes))]
    assert [word for word in argv if not word.startswith(tuple(f"--{name}=" for name in changes))] == others
    assert any_flag.change(after, changes) == after
