"""Units and drop-ins: the command line systemd makes of them, and edits in the place that counts."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles.engine.editing import FormatError, GateChanges, flags, unit
from roles.engine.editing.unit import Sources, UnitFile
from tests.unit.editing import laws

FRAGMENT = "/etc/systemd/system/kubelet.service"
NEW = f"{FRAGMENT}.d/90-new.conf"
ENV = "/etc/default/kubelet"


def sources(fragment: bytes, *dropins: bytes, env: dict[str, bytes | None] | None = None, systemd: int = 257) -> Sources:
    """A unit with drop-ins 10.conf, 20.conf...; `env` by path."""
    units = tuple(UnitFile(f"{FRAGMENT}.d/{number}0.conf", data) for number, data in enumerate(dropins, 1))
    return Sources(UnitFile(FRAGMENT, fragment), units, env or {}, systemd, {"H": "node-1"})


VENDORS = "/usr/lib/systemd/system/kubelet.service"


def vendors(fragment: bytes) -> Sources:
    """A unit that belongs to a package."""
    return Sources(UnitFile(VENDORS, fragment), (), {}, 257, {"H": "node-1"})


def copied(command: bytes, flag: bytes, path: str = VENDORS) -> bytes:
    """The drop-in that daytwo makes for a unit that reads no variable and is not the operator's."""
    note = f"# Copied from ExecStart= of {path} (sha256 {hashlib.sha256(command).hexdigest()}); later edits there do not count\n"
    return unit.MADE + b"\n" + note.encode() + b"[Service]\nExecStart=\nExecStart=" + command + b" " + flag + b"\n"


def argv(found: Sources) -> list[str]:
    return [word.text for word in found.resolve().argv]


def exec_start(command: bytes, *lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in (b"[Service]", *lines, b"ExecStart=" + command))


AB = b'Environment=A=1 "B=x y"'


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (b"/k a  b\t c ", ["a", "b", "c"]),
        (b'/k "a b" \'c d\' e"f"g "" \'\'', ["a b", "c d", "efg", "", ""]),
        (b"/k a \\\n  b \\\n# comment\n  ; another\n  c\\\nd\n", ["a", "b", "c", "d"]),
        (b"/k a \\\n# comment \\\nb", ["a", "b"]),
        (b"/k a \\\n\nb", ["a"]),
        (b"/k a \\\r\n b\r", ["a", "b"]),
        (b"/k a \\\n\r b", ["a", "b"]),
        (b"/k a \\", ["a"]),
        (b"/k a\\\\\n", ["a\\"]),
        (b"/k \\x41\\u00e9\\U0001F600\\101 \\s\\t\\\\\\\"\\'", ["Aé😀A", " \t\\\"'"]),
        (b"/k \\q \\x4 \\x00 \\400 \\8 \\U00110000", ["\\q", "\\x4", "\\x00", "\\400", "\\8", "\\U00110000"]),
        (b'/k a;b ";" \';\' ;x x; \\; "\\;" \\;x', ["a;b", ";", ";", ";x", "x;", ";", "\\;", "\\;x"]),
        (b"/k 100% a%%b x%-y %%H %H", ["100%", "a%b", "x%-y", "%H", "node-1"]),
        (b"/k $A $B", ["1", "x", "y"]),
        (b"/k ${A} ${B} x${A}y$B ${A}${B} $A$B end", ["1", "x y", "x1y$B", "1x y", "end"]),
        (b"/k $$A $$ x$ x$$$A $${A} ${A ${", ["$A", "$", "x$", "x$$A", "${A}", "${A", "${"]),
        (b'/k \'$B\' "${B}" "$A x" "-$A x"', ["x", "y", "x y", "-$A x"]),
        (b"/k $C ${C} x${C}y $1 $ ${} ${1} end", ["", "xy", "", "", "end"]),
        (b"/k ${A:-x} ${A:+y} ${A-B} ${A${B}}", ["${A:-x}", "${A:+y}", "", "}"]),
        (b"-/k $A", ["1"]),
        (b":/k $A ${A} $$ %%", ["$A", "${A}", "$$", "%"]),
        (b"!!/k a", ["a"]),
        (b"k a", ["a"]),
    ],
)
def test_the_words_of_a_command(command: bytes, words: list[str]) -> None:
    found = argv(sources(exec_start(command, AB)))
    assert found[0].endswith("k")
    assert found[1:] == words


def test_the_name_a_program_runs_under() -> None:
    assert argv(sources(exec_start(b"@/usr/bin/kubelet name $A", AB))) == ["name", "1"]
    assert argv(sources(exec_start(b"-@:/usr/bin/kubelet name $A", AB))) == ["name", "$A"]
    assert argv(sources(exec_start(b"@/usr/bin/kubelet ${A} x", AB))) == ["1", "x"]


@pytest.mark.parametrize(
    "fragment",
    [
        b"[Service]\n",
        b"ExecStart=/k\n",
        b"[Unit]\nExecStart=/k\n",
        exec_start(b"/k 'open"),
        exec_start(b'/k "open'),
        exec_start(b"/k a ; /k b"),
        exec_start(b"/k %Q"),
        exec_start(b"- /k"),
        exec_start(b"--/k"),
        exec_start(b"|/k"),
        exec_start(b"/k/"),
        exec_start(b"bin/k"),
        exec_start(b"@/k"),
        exec_start(b"/k", b"ExecStart=/k again"),
        exec_start(b"/k", b"Environment=A=x\\q"),
        exec_start(b"/k", b'Environment="A=open'),
        exec_start(b"/k \xff"),
        exec_start(b"/k", b"X=\xff"),
        exec_start(b"/k \xef\xbf\xbe"),
        exec_start(b"/k\0"),
        exec_start(b"/k", b"[Broken"),
        exec_start(b"/k", b"EnvironmentFile=/missing"),
        exec_start(b"/k", b"EnvironmentFile=/never-looked-at"),
        exec_start(b"/k", b"EnvironmentFile=/etc/*"),
        exec_start(b"/k", b"EnvironmentFile=/etc/[a]"),
        exec_start(b"/k", b"EnvironmentFile=/etc/%n"),
        exec_start(b"/k $A", b"UnsetEnvironment=%n"),
    ],
)
def test_units_that_are_refused(fragment: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        sources(fragment, env={"/missing": None}).resolve()
    assert caught.value.file == FRAGMENT


def test_an_error_names_file_and_line() -> None:
    with pytest.raises(FormatError) as caught:
        sources(exec_start(b"/k"), b"[Service]\n\nEnvironment='A=open\n").resolve()
    assert str(caught.value) == f'{FRAGMENT}.d/10.conf, line 3: a quote is not closed: "\'A=open"; close it'


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"Environment=A=1 A=2", {"A": "2"}),
        (b"Environment='A=x y' \"B=z\"", {"A": "x y", "B": "z"}),
        (b'Environment="A=x \\"y\\" \'z\'"', {"A": "x \"y\" 'z'"}),
        (b"Environment=A=1 \\\n B=2 \\\n# c\n C=3", {"A": "1", "B": "2", "C": "3"}),
        (b"Environment=A 1B=x =y A-B=z C=w", {"C": "w"}),
        (b"Environment=A=%% B=%H C=$A", {"A": "%", "B": "node-1", "C": "$A"}),
        (b"Environment=A=1\nEnvironment=\nEnvironment=B=2", {"B": "2"}),
        (b"Environment=A=\\x41\\u00e9\\tb", {"A": "Aé\tb"}),
        (b"Environment=A= B=\"\" 'C='", {"A": "", "B": "", "C": ""}),
        (b"environment=A=1", {}),
        (b"[Install]\nEnvironment=A=1\n[Service]", {}),
        (b"\xef\xbb\xbfEnvironment=A=1", {"A": "1"}),
        (b"Environment=A=\\xff B=1", {"B": "1"}),
        (b"  Environment = A=1 \r", {"A": "1"}),
    ],
)
def test_environment(line: bytes, values: dict[str, str]) -> None:
    found = sources(exec_start(b"/k", line)).resolve().environment
    assert {name: setting.value.string for name, setting in found.items()} == values


def test_environment_files_beat_the_unit_and_later_ones_the_earlier() -> None:
    lines = (b"EnvironmentFile=/1", b"EnvironmentFile=-/2", b"EnvironmentFile=-/none", b"Environment=A=unit B=unit C=unit")
    service = sources(exec_start(b"/k $A $B $C", *lines), env={"/1": b"A=1\nB=1\n", "/2": b"A=2\n", "/none": None}).resolve()
    assert service.known_argv == ("/k", "2", "1", "unit")
    assert str(service.environment["A"].origin) == "/2:1 (A)"
    assert [(file.path, file.optional, file.present) for file in service.environment_files] == [
        ("/1", False, True),
        ("/2", True, True),
        ("/none", True, False),
    ]


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        (b"EnvironmentFile=/1\nEnvironmentFile=\nEnvironmentFile=/2", ["/2"]),
        (b"EnvironmentFile=//1/", ["/1"]),
        (b"EnvironmentFile=/./1", ["/1"]),
        # Passed over by systemd.
        (b'EnvironmentFile="/1"', []),
        (b"EnvironmentFile=- /1", []),
        (b"EnvironmentFile=--/1", []),
        (b"EnvironmentFile=/2/../1", []),
        (b"EnvironmentFile=1", []),
    ],
)
def test_paths_of_environment_files(line: bytes, paths: list[str]) -> None:
    found = sources(exec_start(b"/k", line), env={"/1": b"", "/2": b""}).resolve().environment_files
    assert [file.path for file in found] == paths


def test_dropins() -> None:
    fragment = exec_start(b"/old $A", b"Environment=A=1 B=2")
    assert argv(sources(fragment, b"[Service]\nExecStart=\nExecStart=/new $A $B\nEnvironment=A=3\n")) == ["/new", "3", "2"]
    assert argv(sources(fragment, b"[Service]\nExecStart=\nExecStart=/one\n", b"[Service]\nExecStart= \nExecStart=/two\n")) == ["/two"]
    with pytest.raises(FormatError, match="2 effective ExecStart="):
        argv(sources(fragment, b"[Service]\nExecStart=/second\n"))
    with pytest.raises(FormatError, match="0 effective ExecStart="):
        argv(sources(fragment, b"[Service]\nExecStart=\n"))


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (b"/k --name=%n", ()),
        (b"/k $A", (b"Environment=A=%n",)),
        (b"/k x${A}", (b"Environment=A=%n",)),
        (b"/k $PATH", ()),
        (b"/k ${LANG}", ()),
        (b"/k $PROXY", (b"PassEnvironment=PROXY",)),
    ],
)
def test_what_only_the_node_knows_is_not_guessed(command: bytes, lines: tuple[bytes, ...]) -> None:
    assert sources(exec_start(command, *lines)).resolve().known_argv is None


def test_unset_variables_of_others_do_not_matter() -> None:
    assert argv(sources(exec_start(b"/k $A", b"UnsetEnvironment=B", b"Environment=A=1 B=2"))) == ["/k", "1"]


@pytest.mark.parametrize(
    ("lines", "words", "told"),
    [
        (
            (b"Environment=A=1", b"UnsetEnvironment=A"),
            [],
            "line 2: systemd ignores this, and does not set A: UnsetEnvironment= removes it again (",
        ),
        (
            (b"UnsetEnvironment=B A", b"Environment=A=1"),
            [],
            "line 3: systemd ignores this, and does not set A: UnsetEnvironment= removes it again (",
        ),
        ((b"Environment=A=1", b"UnsetEnvironment=A=1"), [], "line 2: systemd ignores this, and does not set A: UnsetEnvironment= removes"),
        ((b"Environment=A=1", b"UnsetEnvironment=A=2"), ["1"], None),
        ((b"UnsetEnvironment=A", b"UnsetEnvironment=", b"Environment=A=1"), ["1"], None),
        ((b"Environment=A=1", b"Environment="), [], "line 2: systemd ignores this, and does not set A: an empty Environment= resets it ("),
        ((b"Environment=A=1", b"Environment=", b"Environment=A=2"), ["2"], None),
        ((b"Environment=export A=1",), ["1"], "line 2: systemd ignores this, and does not set all of A: it has no `=`; quotes are missing"),
        ((b"Environment=A=1 --v=2",), ["1"], "line 2: systemd ignores this, and does not set all of A: '--v' is not a variable name"),
        ((b'Environment="export A=1"',), [], "line 2: systemd ignores this, and does not set A: `export` is shell syntax"),
        ((b"Environment=A",), [], "line 2: systemd ignores this, and does not set A: it has no `=`"),
        ((b'Environment="A=\\xff"',), [], "line 2: systemd ignores this, and does not set A: it is not UTF-8"),
        ((b'EnvironmentFile="/1"',), [], 'line 2: systemd ignores this: EnvironmentFile="/1" is not an absolute path'),
        ((b"Environment=export C=1",), [], None),
    ],
)
def test_what_systemd_passes_over_is_not_set_and_is_told(lines: tuple[bytes, ...], words: list[str], told: str | None) -> None:
    service = sources(exec_start(b"/k $A", *lines)).resolve()
    assert service.known_argv == ("/k", *words)
    assert [str(one).startswith(f"{FRAGMENT}, {told}") for one in service.ignored] == ([True] if told else []), service.ignored


def test_lines_of_environment_files_that_systemd_passes_over_are_told() -> None:
    found = sources(READS, env={ENV: b"# c\nexport X=--v=2\nexport Y=1\n"})
    (one,) = found.resolve().ignored
    assert (one.path, one.line, one.variable) == (ENV, 2, "X")
    # What was added behind it counts, and the line is still reported.
    after = edited(found, G)
    assert argv(after) == ["/k", FLAG.decode()] and after.resolve().ignored == (one,)


@pytest.mark.parametrize("data", [b"Y=1\nX=\xff\n", b"Y=1\nX=1\0\n"])
def test_a_file_that_systemd_does_not_read_is_one_that_sets_nothing(data: bytes) -> None:
    found = sources(READS, env={ENV: data})
    assert argv(found) == ["/k"]
    (one,) = found.resolve().ignored
    assert (one.path, one.line) == (ENV, 2) and "systemd reads none of the file" in one.why
    with pytest.raises(FormatError, match="systemd reads none of the file") as caught:
        edit(found, G)
    assert caught.value.file == ENV
    with pytest.raises(FormatError, match="systemd reads none of the file"):
        sources(READS.replace(b"=-/", b"=/"), env={ENV: data}).resolve()


def test_nothing_is_added_to_a_variable_that_is_unset_again() -> None:
    found = sources(exec_start(b"/k $Y $X", b"UnsetEnvironment=X", b"EnvironmentFile=-" + ENV.encode()), env={ENV: b"X=1\n"})
    assert edit(found, G) == {ENV: b'X=1\n# Added by daytwo\nY="' + FLAG + b'"\n'}
    found = sources(exec_start(b"/k $X", b"UnsetEnvironment=X", b"EnvironmentFile=-" + ENV.encode()), env={ENV: b"X=1\n"})
    assert argv(edited(found, G)) == ["/k", FLAG.decode()] and edit(found, G).keys() == {FRAGMENT}


def test_words_know_where_they_are_written() -> None:
    found = sources(exec_start(b"/k --a $X", b"EnvironmentFile=" + ENV.encode()), env={ENV: b"# c\nX='--b --c'\n"})
    assert [str(word.origin) for word in found.resolve().argv] == [f"{FRAGMENT}:3"] * 2 + [f"{ENV}:2 (X)"] * 2


# ---- edits

G = {"G": True}
FLAG = b"--feature-gates=G=true"
READS = exec_start(b"/k $X", b"EnvironmentFile=-" + ENV.encode())


def edit(found: Sources, changes: GateChanges) -> dict[str, bytes | None]:
    return unit.edit_flag(found, flags.FEATURE_GATES, found.resolve().with_gates(changes), variable="X", new_dropin=NEW)


def edited(found: Sources, changes: GateChanges) -> Sources:
    for path, data in edit(found, changes).items():
        found = found.with_file(path, data)
    return found


ADDED: list[tuple[Sources, dict[str, bytes | None]]] = [
    (sources(READS, env={ENV: None}), {ENV: b'# This file was made by daytwo\nX="' + FLAG + b'"\n'}),
    (sources(READS, env={ENV: b"Y=1\n"}), {ENV: b'Y=1\n# Added by daytwo\nX="' + FLAG + b'"\n'}),
    (sources(READS, env={ENV: b"X='--v=2'\n"}), {ENV: b"X='--v=2 " + FLAG + b"'\n"}),
    (sources(READS, env={ENV: b"X=--feature-gates=F=1\n"}), {ENV: b"X=--feature-gates=F=1,G=true\n"}),
    # The last list is the one on the command line itself.
    (
        sources(exec_start(b"/k $X --feature-gates F=0", b"EnvironmentFile=" + ENV.encode()), env={ENV: b"X=--feature-gates=E=1\n"}),
        {FRAGMENT: exec_start(b"/k $X --feature-gates F=0,G=true", b"EnvironmentFile=" + ENV.encode())},
    ),
    (
        sources(exec_start(b'/k "--feature-gates=F=true" \\\n  --v=2')),
        {FRAGMENT: exec_start(b'/k "--feature-gates=F=true,G=true" \\\n  --v=2')},
    ),
    # The place that wins, not one it beats.
    (sources(exec_start(b"/k $X", b'Environment="X=--v=2"')), {FRAGMENT: exec_start(b"/k $X", b'Environment="X=--v=2 ' + FLAG + b'"')}),
    (
        sources(exec_start(b"/k $X", b'Environment="X=--v=2"'), b'[Service]\nEnvironment="X=--v=3" Y=1\n'),
        {f"{FRAGMENT}.d/10.conf": b'[Service]\nEnvironment="X=--v=3 ' + FLAG + b'" Y=1\n'},
    ),
    (
        sources(
            exec_start(b"/k $X", b"EnvironmentFile=/1", b"EnvironmentFile=/2", b"Environment=X=0"), env={"/1": b"X=1\n", "/2": b"X=2\n"}
        ),
        {"/2": b"X=2 " + FLAG + b"\n"},
    ),
    # An empty Environment= variable, and one without quotes around it.
    (sources(exec_start(b"/k $X", b'Environment="X="')), {FRAGMENT: exec_start(b"/k $X", b'Environment="X=' + FLAG + b'"')}),
    (sources(exec_start(b"/k $X", b"Environment=X= Y=1")), {FRAGMENT: exec_start(b"/k $X", b"Environment=X=" + FLAG + b" Y=1")}),
    (sources(exec_start(b"/k $X", b"Environment=X=--v=2")), {FRAGMENT: exec_start(b"/k $X", b"Environment=X=--v=2\\s" + FLAG)}),
    (sources(exec_start(b"/k $X", b'Environment=X="--v=2"')), {FRAGMENT: exec_start(b"/k $X", b'Environment=X="--v=2 ' + FLAG + b'"')}),
    # A variable that nothing sets and no file to set it in; a unit that reads no variable.
    (sources(exec_start(b"/k $X")), {NEW: unit.MADE + b'\n[Service]\nEnvironment="X=' + FLAG + b'"\n'}),
    (sources(exec_start(b"/k --v=2 \\\n  --a")), {FRAGMENT: exec_start(b"/k --v=2 \\\n  --a " + FLAG)}),
    (sources(exec_start(b"/k 100%% ${Y}")), {FRAGMENT: exec_start(b"/k 100%% ${Y} " + FLAG)}),
    (sources(exec_start(b"/k 'a b' \\\n# c\n")), {FRAGMENT: exec_start(b"/k 'a b' " + FLAG + b" \\\n# c\n")}),
    # The operator's own drop-in has the command that counts; a copy of it would mask later edits there.
    (
        sources(exec_start(b"/k"), b"[Service]\nExecStart=\nExecStart=/k --own\nRestart=no\n"),
        {f"{FRAGMENT}.d/10.conf": b"[Service]\nExecStart=\nExecStart=/k --own " + FLAG + b"\nRestart=no\n"},
    ),
    # A package's is not edited.
    (vendors(exec_start(b"/k --v=2 \\\n  --a")), {NEW: copied(b"/k --v=2 \\\n  --a", FLAG)}),
    (vendors(exec_start(b"/k 100%% ${Y}")), {NEW: copied(b"/k 100%% ${Y}", FLAG)}),
    # Another variable than the operator's, where that is not read.
    (sources(exec_start(b"/k $W $Z", b"Environment=Z= W=")), {FRAGMENT: exec_start(b"/k $W $Z", b"Environment=Z=" + FLAG + b" W=")}),
]


@pytest.mark.parametrize(("before", "changed"), ADDED)
def test_add(before: Sources, changed: dict[str, bytes | None]) -> None:
    assert edit(before, G) == changed
    after = edited(before, G)
    assert flags.effective_gates(argv(after))["G"] is True
    assert edit(after, G) == {}
    back = edited(after, {"G": None})
    assert back == before


@pytest.mark.parametrize(
    ("command", "after"),
    [
        (b"/k --feature-gates= --v=2", b"/k --feature-gates=G=true --v=2"),
        (b"/k --feature_gates=", b"/k --feature_gates=G=true"),
        (b'/k --feature-gates "" --v=2', b"/k --feature-gates G=true --v=2"),
        (b"/k --feature-gates '' --v=2", b"/k --feature-gates G=true --v=2"),
        (b'/k "--feature-gates=" --v=2', b'/k "--feature-gates=G=true" --v=2'),
        (b'/k --feature-gates="" --v=2', b"/k --feature-gates=G=true --v=2"),
        (b"/k --feature-gates='' --v=2", b"/k --feature-gates=G=true --v=2"),
        (b"/k --feature-gates=, --v=2", b"/k --feature-gates=G=true --v=2"),
        (b"/k --feature-gates= \\\n  --feature-gates=", b"/k --feature-gates= \\\n  --feature-gates=G=true"),
        # Where there is a list with gates, they go to that.
        (b"/k --feature-gates=F=1 --feature-gates=", b"/k --feature-gates=F=1,G=true --feature-gates="),
        (b"/k --feature-gates= --feature-gates=F=1", b"/k --feature-gates= --feature-gates=F=1,G=true"),
    ],
)
def test_an_empty_list_is_the_list(command: bytes, after: bytes) -> None:
    before = sources(exec_start(command))
    assert edit(before, G) == {FRAGMENT: exec_start(after)}
    assert edit(edited(before, G), G) == {} and edit(before, {"G": None}) == {}


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (b"X=--feature-gates=", b"X=--feature-gates=G=true"),
        (b"X='--v=2 --feature-gates='", b"X='--v=2 --feature-gates=G=true'"),
        (b"X='--feature-gates \"\" --v=2'", b"X='--feature-gates G=true --v=2'"),
        (b'X="--feature-gates=\\"\\" --v=2"', b'X="--feature-gates=G=true --v=2"'),
        (b"X=\"--feature-gates '' --v=2\"", b'X="--feature-gates G=true --v=2"'),
        (b'X="--feature-gates="', b'X="--feature-gates=G=true"'),
    ],
)
def test_an_empty_list_in_an_environment_file_is_the_list(line: bytes, after: bytes) -> None:
    before = sources(READS, env={ENV: line + b"\n"})
    assert edit(before, G) == {ENV: after + b"\n"}
    assert edit(edited(before, G), G) == {}


@pytest.mark.parametrize(
    ("command", "changes", "after"),
    [
        (b"/k --feature-gates=G=true --v=2", {"G": None}, b"/k --v=2"),
        (b"/k --v=2 --feature-gates=G=true", {"G": None}, b"/k --v=2"),
        (b"/k --feature-gates G=true --v=2", {"G": None}, b"/k --v=2"),
        (b"/k \\\n  --feature-gates=G=true \\\n  --v=2", {"G": None}, b"/k \\\n  --v=2"),
        (b"/k \\\n  --v=2 \\\n  --feature-gates=G=true", {"G": None}, b"/k \\\n  --v=2"),
        (b"/k \\\n  --v=2 \\\n  --feature-gates G=true", {"G": None}, b"/k \\\n  --v=2"),
        (b"/k \\\n  --feature-gates \\\n  G=true \\\n  --v=2", {"G": None}, b"/k \\\n  --v=2"),
        (b"/k \\\r\n  --v=2 \\\r\n  --feature-gates=G=true\r", {"G": None}, b"/k \\\r\n  --v=2\r"),
        (b"/k \\\n  --v=2 \\\n# why \\\n  --feature-gates=G=true", {"G": None}, b"/k \\\n  --v=2\n# why \\"),
        (b"/k \\\n  --a \\\n  --feature-gates=G=true \\\n  --feature-gates=F=true", {"G": None, "F": None}, b"/k \\\n  --a"),
        (b"/k \"--feature-gates=G=true,F=true\" 'x'", {"G": None}, b"/k \"--feature-gates=F=true\" 'x'"),
        (b"/k --feature-gates=G=true", {"G": False}, b"/k --feature-gates=G=false"),
        (b"/k --feature-gates=G=true --feature-gates=G=\\x74rue", {"G": False}, b"/k --feature-gates=G=true --feature-gates=G=false"),
    ],
)
def test_change_and_remove_on_the_command_line(command: bytes, changes: GateChanges, after: bytes) -> None:
    tail = b"\nRestart=always\n\n[Install]\n"
    before = sources(b"[Service]\nExecStart=" + command + tail)
    assert edit(before, changes) == {FRAGMENT: b"[Service]\nExecStart=" + after + tail}


def test_a_gate_is_taken_out_of_every_place() -> None:
    lines = (b'Environment="X=--v=1 --feature-gates=G=true"', b"EnvironmentFile=" + ENV.encode())
    before = sources(exec_start(b"/k --feature-gates=G=false $X $Y", *lines), env={ENV: b"Y=--feature-gates=F=1,G=1\n"})
    after = edited(before, {"G": None})
    assert argv(after) == ["/k", "--v=1", "--feature-gates=F=1"]
    assert edit(after, {"G": None}) == {}


def test_a_flag_and_its_value_in_two_places() -> None:
    before = sources(exec_start(b"/k --feature-gates $X --v=2", b"Environment=X=G=true"))
    assert argv(edited(before, {"F": True})) == ["/k", "--feature-gates", "G=true,F=true", "--v=2"]
    assert argv(edited(before, {"G": None})) == ["/k", "--v=2"]


def test_a_variable_that_is_used_twice() -> None:
    before = sources(exec_start(b"/k $X $X", b"EnvironmentFile=" + ENV.encode()), env={ENV: b"X='--v=2 --feature-gates=G=true'\n"})
    assert edit(before, {"G": None}) == {ENV: b"X='--v=2'\n"}
    assert edit(before, {"G": False}) == {ENV: b"X='--v=2 --feature-gates=G=false'\n"}


@pytest.mark.parametrize(
    "before",
    [
        # The flag would never be read, or not as one.
        sources(exec_start(b"/k -- $X", b"EnvironmentFile=-" + ENV.encode()), env={ENV: None}),
        sources(exec_start(b"/bin/sh -c '/k $X'")),
        sources(exec_start(b"/bin/bash -c 'exec /k --feature-gates=F=true'")),
        # Put together inside a word.
        sources(exec_start(b"/k --feature-gates=${X}", b"Environment=X=G=false")),
        # A drop-in that is read later takes the variable, or the command, back.
        sources(exec_start(b"/k $X"), *[b""] * 9, b"[Service]\nEnvironment=\n").with_file(
            f"{FRAGMENT}.d/99.conf", b"[Service]\nEnvironment=\n"
        ),
        vendors(exec_start(b"/k")).with_file(f"{VENDORS}.d/99.conf", b"[Service]\nExecStart=\nExecStart=/k other\n"),
        # The drop-in's name is taken.
        vendors(exec_start(b"/k")).with_file(NEW, b"[Service]\nRestart=no\n"),
        # The value ends in an open quote, which would swallow the flag.
        sources(READS, env={ENV: b'X="\'--v=2"\n'}),
        # systemd already ignores the list.
        sources(READS, env={ENV: b"X=--feature-gates=G\n"}),
        sources(exec_start(b"/k $X", b'Environment="X=--feature-gates=%n=true"')),
    ],
)
def test_edits_that_are_refused(before: Sources) -> None:
    with pytest.raises(FormatError):
        edit(before, G)


def test_a_refusal_names_the_place_that_wins() -> None:
    late = f"{VENDORS}.d/99.conf"
    with pytest.raises(FormatError) as caught:
        edit(vendors(exec_start(b"/k")).with_file(late, b"[Service]\nExecStart=\nExecStart=/k other\n"), G)
    assert caught.value.file == late


@pytest.mark.parametrize(
    ("found", "where"),
    [
        (sources(READS, env={ENV: b"# c\nX='--v=2 --feature-gates=G'\n"}), f"{ENV}, line 2: a feature gate has no value: 'G'"),
        (sources(exec_start(b"/k --feature-gates F=yes")), f"{FRAGMENT}, line 2: a feature gate's value is not a boolean: 'F=yes'"),
        (sources(exec_start(b"/k --feature-gates")), f"{FRAGMENT}, line 2: --feature-gates is the last word and has no value"),
    ],
)
def test_a_list_that_is_refused_as_it_is_is_named_with_its_line(found: Sources, where: str) -> None:
    with pytest.raises(FormatError) as caught:
        edit(found, {"Other": True})
    assert str(caught.value).startswith(where)


def test_a_made_dropin_goes_again_only_while_it_says_nothing_else() -> None:
    before = vendors(exec_start(b"/k --v=2"))
    after = edited(before, G)
    content = after.data(NEW)
    assert content is not None
    more = after.with_file(NEW, content + b"Restart=no\n")
    assert edit(more, {"G": None}) == {NEW: content.replace(b" " + FLAG, b"") + b"Restart=no\n"}
    # The unit has changed under it: the drop-in's command stays in force.
    newer = after.with_file(VENDORS, exec_start(b"/k --v=3"))
    assert edit(newer, {"G": None}) == {NEW: content.replace(b" " + FLAG, b"")}


def test_a_copy_of_the_command_is_known_and_so_is_that_the_unit_has_changed_since() -> None:
    before = vendors(exec_start(b"/k --v=2"))
    after = edited(before, G)
    assert unit.copies(before) == [] and unit.copies(sources(exec_start(b"/k"))) == []
    assert unit.copies(after) == [unit.Copy(NEW, VENDORS, False)]
    # What daytwo itself adds to the copy is no change of the unit, nor is any other part of the unit.
    assert unit.copies(edited(after, {"Other": False})) == [unit.Copy(NEW, VENDORS, False)]
    assert unit.copies(after.with_file(VENDORS, exec_start(b"/k --v=2", b"Restart=no"))) == [unit.Copy(NEW, VENDORS, False)]
    assert unit.copies(after.with_file(VENDORS, exec_start(b"/k --v=3"))) == [unit.Copy(NEW, VENDORS, True)]
    assert unit.copies(after.with_file(VENDORS, exec_start(b"/k --v=2 --more"))) == [unit.Copy(NEW, VENDORS, True)]
    own = f"{FRAGMENT}.d/10.conf"
    assert unit.copies(after.with_file(own, b"[Service]\nExecStart=\nExecStart=/k --v=2\n")) == [unit.Copy(NEW, own, True)]
    assert unit.copies(after.with_file(VENDORS, b"[Service]\n")) == [unit.Copy(NEW, VENDORS, None)]
    # One that is read later has the command that counts: nothing of the copy does.
    assert unit.copies(after.with_file(f"{FRAGMENT}.d/99.conf", b"[Service]\nExecStart=\nExecStart=/k\n")) == []


def test_a_copy_of_an_earlier_daytwo_says_not_what_it_copied() -> None:
    old = vendors(exec_start(b"/k --v=2")).with_file(NEW, unit.MADE + b"\n[Service]\nExecStart=\nExecStart=/k --v=2 " + FLAG + b"\n")
    assert unit.copies(old) == [unit.Copy(NEW, VENDORS, False)]
    assert unit.copies(old.with_file(VENDORS, exec_start(b"/k --v=3"))) == [unit.Copy(NEW, VENDORS, None)]
    assert edit(old, {"G": None}) == {NEW: None}


def test_what_may_be_edited_in_place_is_the_caller_s_to_say() -> None:
    """A link in /etc to a package's file, for one."""
    before = sources(exec_start(b"/k"))
    made = unit.edit_flag(before, flags.FEATURE_GATES, ("G=true",), variable="X", new_dropin=NEW, in_place=lambda path: False)
    assert made == {NEW: copied(b"/k", FLAG, FRAGMENT)}


# ---- one flag

HARD = "memory.available<500Mi,nodefs.available<10%"
OLD = "memory.available<100Mi"


def edit_flag(found: Sources, value: str | None, name: str = "eviction-hard", switch: bool = False) -> dict[str, bytes | None]:
    return unit.edit_flag(found, name, None if value is None else (value,), variable="X", new_dropin=NEW, switch=switch)


def flag_edited(found: Sources, value: str | None, name: str = "eviction-hard", switch: bool = False) -> Sources:
    for path, data in edit_flag(found, value, name, switch).items():
        found = found.with_file(path, data)
    return found


FLAG_ADDED: list[tuple[Sources, dict[str, bytes | None]]] = [
    # In a unit a percent sign stands for itself when it is doubled.
    (
        sources(exec_start(b"/k $X", b'Environment="X=--v=2"')),
        {FRAGMENT: exec_start(b"/k $X", f'Environment="X=--v=2 --eviction-hard={HARD}%"'.encode())},
    ),
    (sources(exec_start(b"/k $X")), {NEW: unit.MADE + f'\n[Service]\nEnvironment="X=--eviction-hard={HARD}%"\n'.encode()}),
    (sources(exec_start(b"/k --v=2")), {FRAGMENT: exec_start(f"/k --v=2 --eviction-hard={HARD}%".encode())}),
    (vendors(exec_start(b"/k --v=2")), {NEW: copied(b"/k --v=2", f"--eviction-hard={HARD}%".encode())}),
]


@pytest.mark.parametrize(("before", "changed"), FLAG_ADDED)
def test_add_a_flag(before: Sources, changed: dict[str, bytes | None]) -> None:
    assert edit_flag(before, HARD) == changed
    after = flag_edited(before, HARD)
    assert flags.flag_values(argv(after), "eviction-hard") == [HARD]
    assert edit_flag(after, HARD) == {}
    assert flag_edited(after, None) == before


@pytest.mark.parametrize(
    ("command", "value", "after"),
    [
        (b"/k --eviction-hard=a<1 --v=2", OLD, b"/k --eviction-hard=memory.available<100Mi --v=2"),
        (b"/k --eviction-hard a<1 --v=2", OLD, b"/k --eviction-hard memory.available<100Mi --v=2"),
        (b"/k --eviction_hard a<1", "a<5%", b"/k --eviction_hard a<5%%"),
        (b"/k --eviction-hard=a<5%%,b<1%% --v", "a<5%", b"/k --eviction-hard=a<5%% --v"),
        (b'/k "--eviction-hard=a<1" x', OLD, b'/k "--eviction-hard=memory.available<100Mi" x'),
        (b'/k --eviction-hard="a<1" x', OLD, b'/k --eviction-hard="memory.available<100Mi" x'),
        (b'/k --eviction-hard "a<1" x', OLD, b'/k --eviction-hard "memory.available<100Mi" x'),
        (b'/k --eviction-hard "" x', OLD, b"/k --eviction-hard memory.available<100Mi x"),
        (b"/k --eviction-hard= x", OLD, b"/k --eviction-hard=memory.available<100Mi x"),
        (b"/k --eviction-hard=\"a\"'<1' x", OLD, b"/k --eviction-hard=memory.available<100Mi x"),
        (b"/k --eviction-hard=\\x61 x", OLD, b"/k --eviction-hard=memory.available<100Mi x"),
        (b"/k --eviction-hard \\x61 x", OLD, b"/k --eviction-hard memory.available<100Mi x"),
        (b"/k --eviction-hard=a<1", "", b"/k --eviction-hard="),
        # Maps add up: the places before the last go.
        (b"/k --eviction-hard=a<1 --v=2 --eviction-hard=b<1", "b<1", b"/k --v=2 --eviction-hard=b<1"),
        (b"/k --eviction-hard a<1 --eviction-hard=b<1", OLD, b"/k --eviction-hard=memory.available<100Mi"),
        (b"/k \\\n  --eviction-hard=a<1 \\\n  --v=2 --eviction-hard b<1", None, b"/k \\\n  --v=2"),
        # Behind a bare `--` it is no flag, and neither is a longer name.
        (b"/k --eviction-hard-x=1 --eviction-hard=a<1 -- --eviction-hard=b", None, b"/k --eviction-hard-x=1 -- --eviction-hard=b"),
    ],
)
def test_change_and_remove_a_flag(command: bytes, value: str | None, after: bytes) -> None:
    before = sources(b"[Service]\nExecStart=" + command + b"\nRestart=no\n")
    assert edit_flag(before, value) == {FRAGMENT: b"[Service]\nExecStart=" + after + b"\nRestart=no\n"}
    assert edit_flag(flag_edited(before, value), value) == {}


@pytest.mark.parametrize(
    ("command", "value", "after"),
    [
        (b"/k --fail-swap-on --v=2", "false", b"/k --fail-swap-on=false --v=2"),
        (b'/k "--fail-swap-on" false', "false", b'/k "--fail-swap-on=false" false'),
        (b"/k --fail-swap-on=1", "false", b"/k --fail-swap-on=false"),
        (b"/k --fail-swap-on --fail-swap-on=false", "true", b"/k --fail-swap-on=true"),
        (b"/k --fail-swap-on false", None, b"/k false"),
    ],
)
def test_a_boolean_flag_does_not_take_the_next_word(command: bytes, value: str | None, after: bytes) -> None:
    assert edit_flag(sources(exec_start(command)), value, "fail-swap-on", switch=True) == {FRAGMENT: exec_start(after)}


@pytest.mark.parametrize(("written", "value"), [("--fail-swap-on", "true"), ("--fail-swap-on=1", "true"), ("--fail-swap-on=F", "false")])
def test_a_boolean_flag_that_says_so_already(written: str, value: str) -> None:
    assert edit_flag(sources(exec_start(b"/k " + written.encode())), value, "fail-swap-on", switch=True) == {}


def test_a_flag_is_taken_out_of_every_place() -> None:
    lines = (b'Environment="X=--v=1 --eviction-hard a<1"', b"EnvironmentFile=" + ENV.encode())
    before = sources(exec_start(b"/k --eviction-hard=a<1 $X $Y", *lines), env={ENV: b"Y=--eviction-hard=b<1\n"})
    assert argv(flag_edited(before, None)) == ["/k", "--v=1"]
    assert argv(flag_edited(before, "c<1")) == ["/k", "--v=1", "--eviction-hard=c<1"]
    assert edit_flag(before, "c<1").keys() == {FRAGMENT, ENV}


def test_a_flag_in_a_variable_that_is_used_twice() -> None:
    before = sources(exec_start(b"/k $X $X", b"EnvironmentFile=" + ENV.encode()), env={ENV: b"X='--v=2 --eviction-hard=a<1'\n"})
    assert edit_flag(before, OLD) == {ENV: f"X='--v=2 --eviction-hard={OLD}'\n".encode()}
    assert edit_flag(before, None) == {ENV: b"X='--v=2'\n"}


@pytest.mark.parametrize("read", [b"/k --v=2", b"/k $X"])
def test_several_flags_share_the_dropin_that_daytwo_made(read: bytes) -> None:
    before = vendors(exec_start(read))
    one = flag_edited(before, OLD)
    both = flag_edited(one, "2m", "eviction-pressure-transition-period")
    assert argv(both)[-2:] == [f"--eviction-hard={OLD}", "--eviction-pressure-transition-period=2m"]
    assert [file.path for file in both.dropins] == [NEW]
    assert flag_edited(flag_edited(both, None), None, "eviction-pressure-transition-period") == before
    assert flag_edited(flag_edited(both, None, "eviction-pressure-transition-period"), None) == before


@pytest.mark.parametrize("value", ["a b", 'a"b', "a'b", "a\\b", "$A", "`a`", "a;b", "a\nb", "é", "{}"])
def test_values_that_are_not_written_on_a_command_line(value: str) -> None:
    with pytest.raises(FormatError, match="character"):
        edit_flag(sources(exec_start(b"/k")), value)


@pytest.mark.parametrize(
    "before",
    [
        sources(exec_start(b"/k --eviction-hard=${X}", b"Environment=X=a<1")),
        sources(exec_start(b"/k --eviction-hard ${X}", b"Environment=X=a<1")),
        sources(exec_start(b"/bin/sh -c 'exec /k --eviction-hard=a<1'")),
        sources(exec_start(b"/bin/sh -c '/k $X'")),
        sources(exec_start(b"/k -- $X", b"EnvironmentFile=-" + ENV.encode()), env={ENV: None}),
        vendors(exec_start(b"/k")).with_file(NEW, b"[Service]\nRestart=no\n"),
        vendors(exec_start(b"/k")).with_file(f"{VENDORS}.d/99.conf", b"[Service]\nExecStart=\nExecStart=/k other\n"),
    ],
)
def test_flags_that_are_not_edited(before: Sources) -> None:
    with pytest.raises(FormatError):
        edit_flag(before, OLD)


def test_a_boolean_flag_with_another_value_is_refused() -> None:
    with pytest.raises(FormatError, match="not a boolean"):
        edit_flag(sources(exec_start(b"/k --fail-swap-on=yes")), "true", "fail-swap-on", switch=True)


def test_dropins_are_read_in_the_order_of_their_names() -> None:
    found = sources(exec_start(b"/k $X"), b"[Service]\nEnvironment=X=1\n")
    later = found.with_file("/run/systemd/system/kubelet.service.d/05.conf", b"[Service]\nEnvironment=X=0\n")
    assert [path.path.rpartition("/")[2] for path in later.dropins] == ["05.conf", "10.conf"]
    assert argv(later) == ["/k", "1"]
    with pytest.raises(FormatError, match="cannot be removed"):
        found.with_file(FRAGMENT, None)


def _files(found: Sources) -> dict[str, bytes]:
    units = {file.path: file.data for file in (found.fragment, *found.dropins)}
    return units | {path: data for path, data in found.environment_files.items() if data is not None}


EDITOR: laws.Editor[Sources] = laws.Editor(
    edit=edited,
    gates=lambda found: flags.effective_gates(argv(found)),
    rest=lambda found: flags.without_gates(argv(found)),
    content=_files,
    empty_list=lambda found: laws.empty_list(argv(found)),
)

_word = st.sampled_from(
    [
        "--v=2", "$X", "$Y", "${Y}", '"$X"', "'a b'", "--feature-gates=Alpha=true", '"--feature-gates=Beta=0,Other=t"',
        "--feature-gates Gamma=1", "--feature-gates=Alpha=T,Alpha=F", "--feature_gates=", '--feature-gates ""', '--feature-gates=""', "%%",
        "$$", "\\x41", "--h=%H", "\\\n  --c", "\\\n  --feature-gates=Beta=true", "\\\n# note\n  --d", "--e \\\n", "--", "/x",
    ]
)  # fmt: skip
_assignment = st.sampled_from(
    [
        "X=", "X=--v=3", '"X=--v=3 --w"', "'X=--feature-gates=Alpha=true --v=4'", "Y=--y", '"Y=--feature-gates=Beta=1"', 'X="--q"',
        "X=a\\x20b",
    ]
)  # fmt: skip
_env_line = st.sampled_from(
    ["X=", "X=--v=5", "X='--v=5 --feature-gates=Gamma=0'", 'X="--feature-gates Alpha=1,Beta=1"', "Y=1", "# c", "Y='--feature-gates=Beta=0'"]
)
_lines = st.lists(
    st.one_of(
        st.lists(_assignment, min_size=1, max_size=2).map(lambda found: f"Environment={' '.join(found)}"),
        st.sampled_from(["Environment=", "EnvironmentFile=-/1", "EnvironmentFile=/2", "EnvironmentFile=", "# comment", "Restart=no", ""]),
        st.sampled_from(["UnsetEnvironment=X", "UnsetEnvironment=Y=--y X=", "UnsetEnvironment=", "Environment=export X=1"]),
    ),
    max_size=3,
)
_command = st.lists(_word, max_size=5).map(lambda found: " ".join(["ExecStart=/k", *found]))


@st.composite
def units(draw: st.DrawFn) -> Sources:
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    last = draw(st.sampled_from([end, ""]))

    def text(lines: list[str]) -> bytes:
        return "\n".join(["[Service]", *lines]).replace("\n", end).encode() + last.encode()

    fragment = text([*draw(_lines), draw(_command), *draw(_lines)])
    dropins = [text(draw(_lines)) for _ in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        dropins.append(text(["ExecStart=", draw(_command)]))
    env = st.none() | st.lists(_env_line, max_size=3).map(lambda found: "\n".join(found).encode())
    second = st.lists(_env_line, max_size=2).map(lambda found: "".join(f"{line}\n" for line in found).encode())
    found = sources(fragment, *dropins, env={"/1": draw(env), "/2": draw(second)})
    return replace(found, fragment=UnitFile(VENDORS, fragment)) if draw(st.booleans()) else found


@settings(max_examples=150)
@given(units(), laws.changes)
def test_laws(found: Sources, changes: dict[str, bool | None]) -> None:
    EDITOR.check(found, changes)


@settings(max_examples=150)
@given(units(), st.sampled_from(["v", "b", "zz"]), st.sampled_from(["7", "a<5%", "", None]))
def test_laws_of_one_flag(found: Sources, name: str, value: str | None) -> None:
    try:
        after = flag_edited(found, value, name)
    except FormatError:
        return
    old, new = argv(found), argv(after)
    # A variable that is used twice gives the flag twice.
    assert set(flags.flag_values(new, name)) == (set() if value is None else {value})
    assert flags.without(new, name) == flags.without(old, name)
    assert edit_flag(after, value, name) == {}, "editing twice is editing once"
    if flags.find([word.mapped for word in found.resolve().argv], name):
        return
    laws.assert_only_added(_files(found), _files(after))
    assert _files(flag_edited(after, None, name)) == _files(found), "what was added can be taken out again"


_piece = st.sampled_from(
    [
        "[Service]", "ExecStart=", "/k", "Environment=", "X=", " ", "\n", "\r", "\\", '"', "'", "$X", "%", "H", ";", "#",
        "--feature-gates=Alpha=1", "\ufeff",
    ]
)  # fmt: skip


@given(st.lists(_piece, max_size=25), laws.changes)
def test_laws_hold_for_any_text(pieces: list[str], changes: dict[str, bool | None]) -> None:
    EDITOR.check(sources(("[Service]\nExecStart=/k $X " + "".join(pieces)).encode()), changes)


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for content in (data, b"[Service]\n" + data):
        try:
            found = unit.entries(UnitFile(FRAGMENT, content))
        except FormatError:
            continue
        for entry in found:
            assert len(entry.value.text) == len(entry.value.spans)
            assert entry.key.encode() in content
