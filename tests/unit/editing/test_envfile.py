"""Environment files as systemd reads them, and edits in them."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.engine.editing import FormatError, Mapped, envfile, flags, unit
from tests.unit.editing import laws

# (content, value of A as systemd reads it; None: not set)
READ: list[tuple[bytes, str | None]] = [
    (b"A=x\n", "x"),
    (b"A=x", "x"),
    (b"", None),
    (b"A=\n", ""),
    (b"A=", ""),
    (b'A=""\n', ""),
    (b"A=1\nA=2\n", "2"),
    (b"A=1\nA=\n", ""),
    (b"A=a b  c \t\n", "a b  c"),
    (b" \t A \t = x\n", "x"),
    (b"A='a  b'\n", "a  b"),
    (b"A='a\"b\\'\n", 'a"b\\'),
    (b'A="a\'b"\n', "a'b"),
    (b'A="a\\"b\\\\c\\$d\\`e\\nf"\n', 'a"b\\c$d`e\\nf'),
    (b'A="a"  b \n', "ab"),
    (b'A="a" "b"\'c\'\n', "abc"),
    (b'A=a"b"\n', 'a"b"'),
    (b'A="x"#y\n', "x#y"),
    (b"A=x # y\n", "x # y"),
    (b"A=x;y\n", "x;y"),
    (b'A=a\\ b\\"c\\\\\n', 'a b"c\\'),
    (b"A=a\\\n  b\n", "a  b"),
    (b'A="a\\\n  b"\n', "a  b"),
    (b"A='a\nb'\n", "a\nb"),
    (b"A='a\n", "a\n"),
    (b'A="a\\', "a"),
    (b"A=a\\", "a"),
    (b"A=a\\\r\nB=b\r\n", "a"),
    (b"A=a\r\nB=b\r\n", "a"),
    (b"A=a\rB=b\r", "a"),
    (b"# A=x\n; A=y\n", None),
    (b"  # c\nA=x\n", "x"),
    (b"# \xff\nA=x\n", "x"),
    (b"export A=x\n", None),
    (b"1=x\nA-B=y\nA.B=z\n=v\n", None),
    (b"A\nB=x\n", None),
    (b"A B=x\n", None),
    (b"\xef\xbb\xbfA=x\n", None),
    (b"\xef\xbb\xbf# c\nA=x\n", "x"),
    (b"A=\xc3\xa9\n", "é"),
    (b"A=a\x01\x1b\x7fb\n", "a\x01\x1b\x7fb"),
    (b'A="$B ${B} %H %%"\nB=2\n', "$B ${B} %H %%"),
]


def values(data: bytes, systemd: int = 257) -> dict[str, str]:
    return {one.name: one.value.string for one in envfile.parse(data, systemd).assignments}


@pytest.mark.parametrize(("data", "value"), READ)
def test_read(data: bytes, value: str | None) -> None:
    assert values(data).get("A") == value


def test_a_comment_goes_on_behind_a_backslash_before_systemd_254() -> None:
    data = b"# note \\\nA=x\n"
    assert values(data, systemd=252) == {}
    assert values(data, systemd=254) == {"A": "x"}


@pytest.mark.parametrize("data", [b"A=x\0\n", b"A=\xff\n", b"\xff=x\n", b"B=1\nA=\xed\xa0\x80\n", b"A=\xef\xbf\xbe\n"])
def test_files_that_systemd_does_not_take_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="reads none of the file") as caught:
        envfile.parse(data)
    assert caught.value.line == data.rstrip(b"\n").count(b"\n") + 1


def test_assignments_know_their_lines() -> None:
    found = envfile.parse(b"# c\nA=1\n\nB='x\ny'\nC=3\n").assignments
    assert [(item.name, item.line) for item in found] == [("A", 2), ("B", 4), ("C", 6)]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"A=x\n#A=y\n; A=z\nB=A=1\n", []),
        (b"B=1\nexport A=x\n", [(2, "`export` is shell syntax")]),
        (b"  export\tA = x\nA=y\n", [(1, "`export` is shell syntax")]),
        (b"\xef\xbb\xbfA=x\n", [(1, "a byte order mark precedes the name")]),
        (b"set A=x\n", [(1, "there is a blank in the name 'set A'")]),
        (b"A B=x\n", [(1, "there is a blank in the name 'A B'")]),
        (b"1A=x\n", [(1, "'1A' is not a variable name")]),
        (b"A+=x\n$A=y\na-=1\n", [(1, "'A+' is not a variable name"), (2, "'$A' is not a variable name")]),
        (b"A\n", [(1, "it has no `=`")]),
        (b"A --v=2", [(1, "there is a blank in the name 'A --v'")]),
        (b"A: --v", [(1, "it has no `=`")]),
        (b"B=1 \\\nA=x\n", [(2, "it is a part of the value of B in line 1")]),
        (b"B='1\nA=x\n'\nA=y\n", [(2, "it is a part of the value of B in line 1")]),
        (b"B.C='1\nA=x\n'\n", [(2, "it continues line 1")]),
        (b"BA=1\nAB=2\nexport BA=1\n", []),
    ],
)
def test_lines_that_name_a_variable_and_do_not_set_it(data: bytes, told: list[tuple[int, str]]) -> None:
    found = envfile.ignored(data, "A")
    assert [(one.line, one.why.startswith(why)) for one, (_, why) in zip(found, told, strict=True)] == [(line, True) for line, _ in told]


def test_a_line_behind_a_comment_with_a_backslash_is_a_part_of_it_before_systemd_254() -> None:
    data = b"# note \\\nA=x\n"
    assert envfile.ignored(data, "A", 257) == []
    (one,) = envfile.ignored(data, "A", 252)
    assert one.line == 2 and "comment before it" in one.why


def test_a_name_that_is_nearly_the_variable_s_is_meant_for_it() -> None:
    for key in (b"export KUBELET_EXTRA_ARGS", b"KUBELET-EXTRA-ARGS", b"1kubelet.extra_args"):
        assert envfile.names(key, "KUBELET_EXTRA_ARGS")
    for key in (b"MY_KUBELET_EXTRA_ARGS", b"KUBELET_EXTRA_ARGS_OLD", b"KUBELET"):
        assert not envfile.names(key, "KUBELET_EXTRA_ARGS")


ADD = {"G": True}


def _edited(data: bytes | None, changes: flags.GateChanges, systemd: int = 257) -> bytes | None:
    """The file after the edit of a command line that splits its variable X."""
    fragment = unit.UnitFile("/etc/u", b"[Service]\nEnvironmentFile=-/etc/env\nExecStart=/usr/bin/kubelet $X\n")
    sources = unit.Sources(fragment, (), {"/etc/env": data}, systemd)
    values = sources.resolve().with_gates(changes)
    return unit.edit_flag(sources, flags.FEATURE_GATES, values, variable="X", new_dropin="/etc/d").get("/etc/env", data)


ADDED = [
    (None, b'# This file was made by daytwo\nX="--feature-gates=G=true"\n'),
    (b"", b'# Added by daytwo\nX="--feature-gates=G=true"\n'),
    (b"A=1\n", b'A=1\n# Added by daytwo\nX="--feature-gates=G=true"\n'),
    (b"A=1", b'A=1\n# Added by daytwo\nX="--feature-gates=G=true"'),
    (b"A=1\r\n", b'A=1\r\n# Added by daytwo\r\nX="--feature-gates=G=true"\r\n'),
    (b"X=\n", b"X=--feature-gates=G=true\n"),
    (b"X=", b"X=--feature-gates=G=true"),
    (b'X=""\n', b'X="--feature-gates=G=true"\n'),
    (b"X=''  \n", b"X='--feature-gates=G=true'  \n"),
    (b"X=--v=2\n", b"X=--v=2 --feature-gates=G=true\n"),
    (b"X=--v=2  \r\n", b"X=--v=2 --feature-gates=G=true  \r\n"),
    (b'X="--v=2"\n# \xff\n', b'X="--v=2 --feature-gates=G=true"\n# \xff\n'),
    (b"X='--v=2'", b"X='--v=2 --feature-gates=G=true'"),
    (b"X=--a \\\n  --b\nY=1\n", b"X=--a \\\n  --b --feature-gates=G=true\nY=1\n"),
    (b"X=--v=1\nX=--v=2\n", b"X=--v=1\nX=--v=2 --feature-gates=G=true\n"),
    (b"X=--feature-gates=F=true\n", b"X=--feature-gates=F=true,G=true\n"),
    (b'X="--feature-gates=F=true --v=2"\n', b'X="--feature-gates=F=true,G=true --v=2"\n'),
    (b'X="--feature-gates F=true --v=2"\n', b'X="--feature-gates F=true,G=true --v=2"\n'),
    (b"X='--feature_gates=\"F=true\" --v=2'\n", b"X='--feature_gates=\"F=true,G=true\" --v=2'\n"),
    (b"X=\"--feature-gates='F=true, '\"\n", None),  # the kubelet refuses a blank item
    (b"X=--feature-gates=A=1 --feature-gates=B=1\n", b"X=--feature-gates=A=1 --feature-gates=B=1,G=true\n"),
    (b"X=-- a\n", None),
    (b'X="\'--v=2"\n', None),
    (b"A=x\\", None),
    (b'A="x', None),
]


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_add(before: bytes | None, after: bytes | None) -> None:
    if after is None:
        with pytest.raises(FormatError):
            _edited(before, ADD)
        return
    assert _edited(before, ADD) == after
    assert _edited(after, ADD) == after
    assert _edited(after, {"G": None}) == before


def test_behind_a_last_comment_with_a_backslash() -> None:
    """Before systemd 254 the comment goes on over the marker's line, and ends there."""
    data = b"A=1\n# note \\"
    for release in (252, 257):
        after = _edited(data, ADD, release)
        assert after == data + b'\n# Added by daytwo\nX="--feature-gates=G=true"'
        assert values(after, release) == {"A": "1", "X": "--feature-gates=G=true"}
        assert _edited(after, {"G": None}, release) == data


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (b"X=--feature-gates=G=true --v=2\n", {"G": None}, b"X=--v=2\n"),
        (b"X=--v=2 --feature-gates=G=true\n", {"G": None}, b"X=--v=2\n"),
        (b"X='--a --feature-gates G=true --b'\n", {"G": None}, b"X='--a --b'\n"),
        (b"X='--feature-gates G=true --b'\n", {"G": None}, b"X='--b'\n"),
        (b"X=--feature-gates=G=true\n", {"G": None}, b"X=\n"),
        (b"X=--feature-gates=G=true,F=true --v=1 --feature-gates=G=false\n", {"G": None}, b"X=--v=1 --feature-gates=F=true\n"),
        (b"X=--feature-gates=G=true --feature-gates=F=true --v=1\n", {"G": None, "F": None}, b"X=--v=1\n"),
        (b"X=1\nA=1\n", {"G": None}, b"X=1\nA=1\n"),
    ],
)
def test_change_and_remove(before: bytes, changes: dict[str, bool | None], after: bytes) -> None:
    assert _edited(before, changes) == after


def test_what_an_operator_wrote_behind_an_added_flag_stays() -> None:
    made = _edited(None, ADD)
    assert made is not None
    assert _edited(made + b"A=1\n", {"G": None}) == b"A=1\n"
    more = made.replace(b'G=true"', b'G=true --v=2"')
    assert _edited(more, {"G": None}) == b'# This file was made by daytwo\nX="--v=2"\n'


def test_nothing_wanted_makes_no_file() -> None:
    assert _edited(None, {"G": None}) is None
    assert _edited(b"A=1\n", {"G": None}) == b"A=1\n"


def _gates(data: bytes | None) -> dict[str, bool]:
    return flags.effective_gates(_words(data))


def _words(data: bytes | None) -> list[str]:
    found = envfile.parse(data or b"").last("X")
    return [word.string for word in envfile.split_variable(found.value)] if found else []


EDITOR: laws.Editor[bytes | None] = laws.Editor(
    edit=_edited,
    gates=_gates,
    rest=lambda data: (
        flags.without_gates(_words(data)),
        {name: value for name, value in values(data or b"").items() if name != "X"},
    ),
    content=lambda data: {} if data is None else {"file": data},
    empty_list=lambda data: laws.empty_list(_words(data)),
)

_flag = st.sampled_from(
    [
        "--v=2", "--node-ip 10.0.0.1", "--feature-gates=Alpha=true", "--feature-gates=Beta=0,Other=t",
        "--feature-gates Alpha=F,Beta=true,Alpha=true", "--feature_gates=Gamma=TRUE,", "--feature-gates=", "--feature-gates ''",
        "--labels=é=$X", "--x=\\\\", "--",
    ]
)  # fmt: skip
_value = st.lists(_flag, max_size=4).map(" ".join)
_quoted = st.builds(
    str.format,
    st.sampled_from(["{}", '"{}"', "'{}'", ' "{}"  ', "{} ", "'{}' tail", '"{}"\\\n  more', "{} \\\n\t--last", "'\n{}\n'", "\"'{}'\""]),
    _value,
)
_line = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["X=", " X = ", "X=", "Y=", "export X="]), _quoted),
    st.sampled_from(["# comment", "; X=1", "# \\", "", "  ", "X=", "X=''", "no assignment", 'Z="a\nb"']),
)


@st.composite
def environment_files(draw: st.DrawFn) -> bytes:
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    text = end.join(draw(st.lists(_line, max_size=5))) + draw(st.sampled_from([end, "", end * 2]))
    return draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"# \xff\n"])) + text.encode()


@settings(max_examples=200)
@given(environment_files(), laws.changes)
def test_laws(data: bytes, changes: dict[str, bool | None]) -> None:
    EDITOR.check(data, changes)


@given(
    st.lists(st.sampled_from(["X", "=", "'", '"', "\\", "\n", "\r", " ", "#", "--feature-gates=Alpha=true", ",", "--", "$", "a"])),
    laws.changes,
)
def test_laws_hold_for_any_text(pieces: list[str], changes: dict[str, bool | None]) -> None:
    EDITOR.check("".join(pieces).encode(), changes)


@settings(max_examples=200)
@given(environment_files())
def test_every_line_that_looks_like_an_assignment_is_one_or_is_told(data: bytes) -> None:
    set_on = [found.line for found in envfile.parse(data).assignments if found.name == "X"]
    told = [one.line for one in envfile.ignored(data, "X")]
    looks = [number for number, line in enumerate(data.split(b"\n"), 1) if re.match(rb"\s*(export )?X *=", line)]
    assert set(looks) <= {*set_on, *told} and not {*set_on} & {*told}


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = envfile.parse(data)
    except FormatError:
        return
    for assignment in found.assignments:
        assert data[slice(*assignment.extent)].lstrip().startswith(assignment.name.encode())


@given(st.text(st.sampled_from("ab'\"\\ \t\n")))
def test_splitting_a_variable_never_fails_and_keeps_its_place(value: str) -> None:
    data = value.encode()
    for word in envfile.split_variable(Mapped.of(data)):
        assert bytes(data[start:end][-1] for start, end in word.spans) == word.text
