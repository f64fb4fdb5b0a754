"""Units and environment files as the node's own systemd reads them: the words a process really gets.

The units are made under /run, run a script that writes its own arguments down, and are gone with their folder when the batch ends,
however it ends. No other unit is touched.
"""

from __future__ import annotations

import base64
import io
import os
import random
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from roles.engine.editing import FormatError, GateChanges, flags, unit
from roles.engine.editing.flags import FEATURE_GATES
from roles.engine.editing.unit import Sources, UnitFile
from tests.lab import Lab

pytestmark = pytest.mark.lab

FOLDER = f"/run/daytwo-consumers-{os.getpid()}"
PREFIX = f"daytwo-consumers-{os.getpid()}-"
CHANGES: GateChanges = {"Alpha": True, "Beta": False, "Gamma": None}


@dataclass(frozen=True)
class Case:
    """A unit, its drop-ins in order, and its environment files by name. <RUN> stands for the program and its first argument,
    <DUMP> for the script alone, <DIR> for the case's own folder. `refused`: daytwo will not read it though systemd does."""

    fragment: bytes
    dropins: tuple[bytes, ...] = ()
    files: dict[str, bytes | None] = field(default_factory=dict)
    refused: bool = False

    def sources(self, number: int, release: int) -> Sources:
        folder = f"{FOLDER}/{number}"

        def put(text: bytes) -> bytes:
            # The shell runs under another name: daytwo adds no flags behind a shell's own words.
            text = text.replace(b"<RUN>", b"@/bin/sh kubelet <DUMP>").replace(b"<DUMP>", f"{FOLDER}/dump {number}".encode())
            return text.replace(b"<DIR>", folder.encode())

        path = f"/run/systemd/system/{PREFIX}{number}.service"
        dropins = tuple(UnitFile(f"{path}.d/{index:02}.conf", put(data)) for index, data in enumerate(self.dropins))
        files = {f"{folder}/{name}": None if data is None else put(data) for name, data in self.files.items()}
        return Sources(UnitFile(path, put(self.fragment)), dropins, files, release)


def service(command: bytes, *lines: bytes) -> bytes:
    return b"\n".join([b"[Service]", *lines, b"ExecStart=" + command + b"\n"])


def conf(*lines: bytes) -> bytes:
    return b"\n".join([b"[Service]", *lines, b""])


# ---- environment files: each is shown split, whole, and with what stands behind it

ENVIRONMENT_FILES = [
    *(b"A=x\n", b"A=x", b"", b"\n", b"A=\n", b"A=", b'A=""\n', b"A=''", b"A=1\nA=2\n", b"A=1\nA=\n", b"A=\nA=1\n", b"\n\nA=x\n\n"),
    *(b"A=a b  c \n", b"  A = x \n", b"A\t=\tx\t\n", b'A="a b"\n', b"A='a  b'\n", b'A="a\'b"\n', b"A='a\"b'\n", b"A='a\\'\n", b'A="  "\n'),
    *(b'A="a"b\n', b'A=a"b"\n', b'A="a" "b"\n', b'A="a"  b  \n', b"A='a' 'b'c'd'\n", b'A="x"#y\n', b"A=x;y\nB=2\n", b"A=x # y\n"),
    *(
        b'A="a\\"b\\\\c\\$d\\`e\\nf"\n', b'A=a\\ b\\"c\n', b"A=\\x\n", b"A=\\\\n \n", b"A=x\\\\\nB=2\n", b"A=x\\\\\\\nB=2\n",
        b"A=x\\ \nB=2\n",
    ),
    *(b"A=a\\\nb\n", b'A="a\\\nb"\n', b"A='a\nb'\n", b"A=\\\nB=2\n", b"A=\\\n\nB=2\n", b'A="a"\\\nb\n', b'A="a" \\\n b \n', b"A= \\\n b\n"),
    *(b"A=x\\", b'A="x', b"A='x", b'A="x\\', b'A="x\ny\n', b"A=x'y z'\n", b'A="a"\\b \n', b"A=x \\ \nB=2\n"),
    *(b"A=1\r\nB=2\r\n", b"A=1\rB=2\r", b"A=a\\\r\nb\r\nB=2\r\n", b'A="a\\\r\nb"\r\nB=2\r\n', b"#c\\\r\nA=x\r\nB=2\r\n"),
    *(b"# c\nA=x\n", b"; c\nA=x\n", b"  # c\nA=x\n", b"# c \\\nA=x\nB=2\n", b"# c \\\\\nA=x\nB=2\n", b"# c \\", b"# \xff\nA=x\n"),
    *(b"export A=x\nB=2\n", b"1A=x\nA=y\n", b"A-B=x\nA=y\n", b"A.B=x\nA=y\n", b"=x\nA=y\n", b"A\nB=2\n", b"A B=x\nA=y\n", b"a=1\nA=2\n"),
    *(b"\xef\xbb\xbfA=x\nB=2\n", b"\xef\xbb\xbf# c\nA=x\nB=2\n", b"A=\xc3\xa9\nB=2\n", b"A=\xe2\x80\x83x\n", b"A=a\x01\x1b[0m\x7fb\n"),
    *(b"A=a\x0bb\x0cc\n", b'A="a\tb\n\nc"\n', b"A=--f 'a b' \"c d\" e\\ f\n", b"A=\"--f 'a b' e\\\\ f g\\\\\"\n", b"A='a \"b c'\n"),
    *(b'A="\'open"\n', b'A=\'a\\ b "c\\"d" \\x41\\n\'\n', b'A="$B ${B} $$ %H %%"\nB=2\n', b"A=\"'' b\"\n", b"A='\"\"'\n", b"_A=3\nA=$_A\n"),
    # None of these starts.
    *(b"A=\xff\nB=2\n", b"B=2\nA=\xff\n", b"\xff=1\n", b"A=\xef\xbf\xbe\n", b"A=\xef\xb7\x90\n", b"A=\xed\xa0\x80\n", b"A=x\0y\nB=2\n"),
]  # fmt: skip

COMMANDS = [
    b'<RUN> ${A} ${B} x${A}y$B $$A $$ $ x$ ${ ${A $${A} ${} $A$B ${A}${B} "$A" "$B" \'$B\' "${B}"',
    b"<RUN> $1 $- $A-B ${A-B} ${A:-x} ${A:+y} ${C} $C z ${A${B}} ${1} x$$${A}",
    b'<RUN> "$A x" "-$A x" "$$" "" \'\' a""b a"b c"d $A\\ b "$A"x',
    b'<RUN> \\$A \\x24A "\\$A" \\\\$A %%{A} $%%A ${%%A}',
    b"<RUN> \\x41 \\u00e9 \\U0001F600 \\101 \\t \\s \\n \\q \\\\ \\\" \\' \"\\x41\\\"\" '\\x41\\'' a\\ b \\8",
    b"<RUN> \\x4 \\x00 \\400 \\ud800 \\U00110000 \\U0000fffe \\uffff \\xff \\a\\b\\f\\r\\v",
    b"<RUN> %% 100% a%%b %%H %- %= %. a%",
    b'<RUN> a;b ";" \';\' ;x x; \\; "\\;" \\;x a\\;',
    b'<RUN> "a b" \\\n  c \\\n# comment\n  ; other\n  d\\\ne\\\n\nf',
    b"<RUN> a \\\n#c \\\nb",
    b"<RUN> a \\",
    b"<RUN> a \\\r\n b\r",
    b"<RUN> a \\\n\r b",
    b"<RUN> a \\\n\\\nb",
    b"<RUN> a\\\\\n",
    b"<RUN> \t a\tb \t",
    b'<RUN> a\x01b caf\xc3\xa9 "a\\nb" a#b #c',
    *(b"-/bin/sh <DUMP> $A", b":/bin/sh <DUMP> $A ${A} $$ %%", b"-@:/bin/sh zero <DUMP> $A", b"+/bin/sh <DUMP> $A", b"!/bin/sh <DUMP> $A"),
    *(
        b"!!/bin/sh <DUMP> $A",
        b"@/bin/sh $A <DUMP>",
        b"@/bin/sh ${A} <DUMP>",
        b'"/bin/sh" <DUMP> x',
        b'"/bin/"sh <DUMP>',
        b'"-/bin/sh" <DUMP>',
    ),
    *(b"sh <DUMP>", b"//bin//sh <DUMP>", b"/bin/../bin/sh <DUMP>", b"/bin/./sh <DUMP>"),
    # None of these starts.
    *(
        b"|/bin/sh <DUMP>", b"--/bin/sh <DUMP>", b"- /bin/sh <DUMP>", b"/bin/ <DUMP>", b"bin/sh <DUMP>", b"@/bin/sh", b"<RUN> 'open",
        b'<RUN> "open',
    ),
    *(b"<RUN> %Q", b"<RUN> %1", b"<RUN> \xff", b"<RUN> \xef\xbf\xbe", b"<RUN> it's", b"@", b"-"),
]  # fmt: skip

ENVIRONMENT = [
    *(
        b"Environment=A=1 A=2",
        b"Environment=A='x y'",
        b"Environment='A=x y' B=2",
        b'Environment="A=x \\"y\\" \'z\'"',
        b'Environment="A=a"b',
    ),
    *(
        b"Environment=A",
        b"Environment==x A=1",
        b"Environment=1A=x A=2",
        b'Environment="A= x "',
        b"Environment=A-B=1 A=3",
        b"Environment = A=4",
    ),
    *(
        b"Environment=A=\\x41\\u00e9\\tb",
        b"Environment=A=\\xff B=2",
        b"Environment=A=%% B=%-%%H",
        b"Environment=A=$B B=x",
        b"Environment=A=\xc3\xa9",
    ),
    *(
        b"Environment=A=1\nEnvironment=\nEnvironment=B=2",
        b"Environment=A=1\nEnvironment=A=2 B=7",
        b"environment=A=1",
        b"Environment=A=1;B=2",
    ),
    *(
        b"Environment=A=1 \\\n B=2 \\\n# x\n A=3",
        b"Environment=A=",
        b'Environment=A=""',
        b'Environment="A=a\x01b"',
        b"Environment=A=x\\x01y",
    ),
    *(b"[Install]\nEnvironment=A=1\n[Service]\nEnvironment=B=1", b"[X-A]\nEnvironment=A=1\n[Service]", b"  [Service]  \n  Environment=A=1"),
    *(
        b"Environment=A=1 # c B=2",
        b"NoEquals\nEnvironment=A=1",
        b"=x\nEnvironment=A=1",
        b"#\xff\nEnvironment=A=1",
        b"Environment=A=1\rEnvironment=B=2",
    ),
    *(
        b"\xef\xbb\xbfEnvironment=A=1",
        b"\xef\xbb\xbf# c\nEnvironment=A=1",
        b"Environment=A=1\n\rEnvironment=B=2",
        b"Environment=A=1 \\\n\rEnvironment=B=2",
    ),
    *(b"Environment=A=x\\s--y B=1", b"UnsetEnvironment=C\nEnvironment=A=1 B=2", b"UnsetEnvironment=A\nUnsetEnvironment=\nEnvironment=A=1"),
    # None of these starts.
    *(b"X=\xff\nEnvironment=A=1", b"\xffKey=1", b"[Serv\nEnvironment=A=1"),
]

# systemd passes over what is wrong here and starts; daytwo asks for it to be fixed first, since an edit would rest on a guess.
GUESSES = [
    *(b"Environment=A=x\\qy B=3", b'Environment="A=open B=2', b'Environment=B=5 "A=open', b"Environment=A=%Q"),
    *(b"EnvironmentFile=<DIR>/*", b"EnvironmentFile=<DIR>/[1]", b"EnvironmentFile=<DIR>/\\1"),
]

ORDER = [
    *(b"EnvironmentFile=<DIR>/1\nEnvironmentFile=<DIR>/2", b"EnvironmentFile=<DIR>/2\nEnvironmentFile=<DIR>/1"),
    *(b"EnvironmentFile=<DIR>/1\nEnvironmentFile=\nEnvironmentFile=<DIR>/2", b"EnvironmentFile=-<DIR>/none\nEnvironmentFile=<DIR>/2"),
    *(
        b"EnvironmentFile=<DIR>/2\nEnvironment=A=9 B=9",
        b'EnvironmentFile="<DIR>/1"',
        b"EnvironmentFile=<DIR>//1",
        b"EnvironmentFile=<DIR>/./1",
    ),
    *(
        b"EnvironmentFile=<DIR>/../1",
        b"EnvironmentFile=- <DIR>/1",
        b"EnvironmentFile=/<DIR>/1",
        b"EnvironmentFile=<DIR>/1/",
        b"EnvironmentFile=run/x",
    ),
    *(b"EnvironmentFile=--<DIR>/1", b"EnvironmentFile=<DIR>/1 \\\n"),
    *(
        b"UnsetEnvironment=A\nEnvironment=A=1",
        b"EnvironmentFile=<DIR>/1\nUnsetEnvironment=A",
        b"Environment=A=9 B=9\nUnsetEnvironment=A=9 B=1",
        b"Environment=A=9 B=9\nUnsetEnvironment=B A-\nUnsetEnvironment=A=8",
    ),
    # None of these starts.
    *(b"EnvironmentFile=<DIR>/none\nEnvironmentFile=<DIR>/2", b"EnvironmentFile=<DIR>/1 # c", b"EnvironmentFile=<DIR>/1 <DIR>/2"),
]

DROPINS: list[tuple[tuple[bytes, ...], bool]] = [
    ((conf(b"Environment=A=2"),), False),
    ((conf(b"ExecStart=", b"ExecStart=<RUN> new $A"),), False),
    ((conf(b"ExecStart=", b"ExecStart=<RUN> one"), conf(b"ExecStart=  ", b"ExecStart=<RUN> two")), False),
    ((conf(b"Environment=", b"Environment=B=3"),), False),
    ((b"ExecStart=\nEnvironment=A=3\n",), False),
    ((b"\xef\xbb\xbf[Service]\r\nEnvironment=A=3\r\n",), False),
    ((b"",), False),
    ((b"[Service]\nEnvironment=A=3 \\",), False),
    # Neither of these starts.
    ((conf(b"ExecStart=<RUN> second"),), False),
    ((conf(b"ExecStart="),), False),
    # systemd stops reading such a drop-in where it is broken, and starts.
    ((b"[Service]\nEnvironment=A=3\nX=\xff\nEnvironment=B=3\n",), True),
    ((b"[Service\nEnvironment=B=3\n", conf(b"Environment=A=3")), True),
    ((conf(b"Type=oneshot", b"ExecStart=<RUN> second"),), True),
    ((conf(b'ExecStart="'),), True),
]

# ---- units with gates, for edits

GATES = [
    Case(service(b"<RUN> $A", b"EnvironmentFile=-<DIR>/env"), files={"env": None}),
    Case(service(b"<RUN> $A --v=2", b"EnvironmentFile=-<DIR>/env"), files={"env": b"# c\nB=1"}),
    Case(service(b"<RUN> $A", b"EnvironmentFile=<DIR>/env"), files={"env": b"A='--v=2 --feature-gates=Gamma=true,Other=t'\r\n"}),
    Case(service(b"<RUN> $A", b"EnvironmentFile=<DIR>/env"), files={"env": b'A=""\n'}),
    Case(service(b"<RUN> $A", b"EnvironmentFile=<DIR>/env"), files={"env": b"A=--a \\\n  --b\n# \xff\n"}),
    Case(service(b"<RUN> $A", b"EnvironmentFile=<DIR>/env"), files={"env": b'A="--feature-gates Alpha=0,Gamma=1"\n'}),
    Case(service(b"<RUN> $A", b'Environment="A=--v=2"'), (conf(b'Environment="A=--v=3 --feature-gates=Beta=1" B=2'),)),
    Case(service(b"<RUN> $A", b"Environment=A=")),
    Case(service(b"<RUN> $A", b"Environment=A=--v=2")),
    Case(service(b"<RUN> $A", b'Environment=A="--v=2" B=x')),
    Case(service(b"<RUN> $A")),
    Case(service(b"<RUN> --v=2 100%% $$ \\\n  --x 'a b'")),
    Case(service(b'<RUN> \\\n  --feature-gates=Gamma=true \\\n  "--feature-gates=Alpha=\\x66,Other=1" \\\n  --v=2')),
    Case(service(b"<RUN> \\\n  --v=2 \\\n# why \\\n  --feature-gates=Gamma=true") + b"Restart=no\n"),
    Case(service(b"<RUN> \\\n  --v=2 \\\n  --feature-gates \\\n  Gamma=true\\\n\n") + b"Restart=no\n"),
    Case(service(b"<RUN> --feature-gates=Alpha=0 $A", b"EnvironmentFile=<DIR>/env"), files={"env": b"A=--feature-gates=Gamma=1,Alpha=1\n"}),
]


def generated(seed: int, count: int) -> Iterator[Case]:
    """Units put together by chance, the same ones on each run."""
    chance = random.Random(seed)
    words = [
        "--v=2", "$A", "$B", "${A}", '"$B"', "x${B}y", "'a b'", '"c\\td"', "e\\sf", "%%", "$$", "\\\n  --g", "\\\n# note\n --h",
        "--feature-gates=Alpha=F",
    ]  # fmt: skip
    words += ['"--feature-gates=Gamma=1,Other=0"', "--feature-gates Beta=t", "\\\n  --feature_gates=Gamma=true", "\\x2d\\055q", "é", "''"]
    values = [
        "", "x", "--i", "--j --k", "'--l m'", '"--n \\" o"', "'--p' '--q'", "--r\\\n  --s", "--t # u", "--feature-gates=Beta=true",
        '"--feature-gates=Gamma=1 --w"',
    ]  # fmt: skip
    assignments = ["A=1", "A=", '"A=--v=3 --w"', "'B=x  y'", "B=a\\x20b", 'A="--q"', "C=3", '"A=--feature-gates=Alpha=1"', "B=%%"]

    def lines() -> list[str]:
        kinds = [
            lambda: "Environment=" + " ".join(chance.sample(assignments, chance.randint(0, 3))),
            lambda: "EnvironmentFile=" + chance.choice(["-<DIR>/1", "<DIR>/2", ""]),
            lambda: chance.choice(["# comment \\", "", "; c", "Environment=\\\n  A=7", "RestartSec=1"]),
        ]
        return [chance.choice(kinds)() for _ in range(chance.randint(0, 3))]

    def command() -> str:
        return " ".join(["ExecStart=<RUN>", *chance.choices(words, k=chance.randint(0, 5))])

    def environment_file() -> bytes:
        names = ["A=", "B=", " A = ", "export A=", "C="]
        rows = [chance.choice([chance.choice(names) + chance.choice(values), "# c", "; c \\", ""]) for _ in range(chance.randint(0, 4))]
        end = chance.choice(["\n", "\n", "\r\n"])
        return (end.join(rows) + chance.choice([end, ""])).encode()

    for _ in range(count):
        end = chance.choice(["\n", "\n", "\n", "\r\n"])
        files = {"1": chance.choice([None, environment_file()]), "2": environment_file()}
        body = ["[Service]", *lines(), command(), *lines()]
        dropins = [["[Service]", *lines(), *chance.choice([[], [], ["ExecStart=", command()]])] for _ in range(chance.randint(0, 2))]
        fragment, *rest = ("\n".join([*part, ""]).replace("\n", end).encode() for part in (body, *dropins))
        yield Case(fragment, tuple(rest), files)


def cases() -> list[Case]:
    shown = b"<RUN> $A . ${A} . $B . ${B}"
    found = [Case(service(shown, b"EnvironmentFile=<DIR>/env"), files={"env": data}) for data in ENVIRONMENT_FILES]
    found += [Case(service(command, b'Environment=A=1 "B=x y"')) for command in COMMANDS]
    found += [Case(service(shown, line)) for line in ENVIRONMENT]
    numbered: dict[str, bytes | None] = {"1": b"A=1\nB=1\n", "2": b"A=2\n", "none": None}
    found += [Case(service(shown, line), files=numbered, refused=True) for line in GUESSES]
    found += [Case(service(shown, line), files=numbered) for line in ORDER]
    found += [Case(service(shown, b"Environment=A=1 B=2"), dropins, refused=refused) for dropins, refused in DROPINS]
    # Behind a `-` systemd goes on without a file that it cannot read.
    found.append(Case(service(shown, b"EnvironmentFile=-<DIR>/env"), files={"env": b"B=1\nA=\xff\n"}))
    return [*found, *GATES, *generated(252, 40)]


@dataclass(frozen=True)
class Outcome:
    """What daytwo says (words, or its refusal) and what the process got (None: it never ran)."""

    case: Case
    said: list[str] | FormatError
    got: list[str] | None
    edited: bool

    @property
    def agrees(self) -> bool:
        if isinstance(self.said, FormatError):
            return self.got is None or self.case.refused
        return self.said == self.got and not self.case.refused

    def __str__(self) -> str:
        files = [self.case.fragment, *self.case.dropins, self.case.files]
        return f"{files}{' edited' if self.edited else ''}\n  systemd: {self.got}\n  daytwo:  {self.said}"


def _said(sources: Sources) -> list[str] | FormatError:
    try:
        return [word.text for word in sources.resolve().argv]
    except FormatError as error:
        return error


def _edited(sources: Sources) -> Sources | None:
    """The same unit with gates changed; None where that is refused."""
    try:
        values = sources.resolve().with_gates(CHANGES)
        dropin = f"{sources.fragment.path}.d/90.conf"
        return sources.with_files(unit.edit_flag(sources, FEATURE_GATES, values, variable="A", new_dropin=dropin))
    except FormatError:
        return None


def _archive(batch: list[Sources]) -> bytes:
    """All files of the batch, and the script that writes its own arguments down."""
    packed = io.BytesIO()
    script = f"cat /proc/$$/cmdline >{FOLDER}/$1.new && mv {FOLDER}/$1.new {FOLDER}/$1.argv\n".encode()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        found = {f"{FOLDER}/dump": script}
        for sources in batch:
            found |= {file.path: file.data for file in (sources.fragment, *sources.dropins)}
            found |= {path: data for path, data in sources.environment_files.items() if data is not None}
        for path, data in found.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _run(lab: Lab, node: str, batch: list[Sources]) -> dict[int, list[str]]:
    """Start all units of the batch and wait until they have ended; the arguments of each process that ran, by its number."""
    names = " ".join(f"{PREFIX}{number}.service" for number in range(len(batch)))
    command = f"""
        clean() {{ rm -rf {FOLDER} /run/systemd/system/{PREFIX}*; systemctl daemon-reload; systemctl reset-failed '{PREFIX}*' 2>/dev/null; }}
        trap clean EXIT
        base64 -d | tar -x -C / && systemctl daemon-reload || exit 1
        systemctl start --wait {names} 2>/dev/null
        # It does not wait for those that run once one could not be started.
        at_work() {{ systemctl list-jobs --no-legend '{PREFIX}*' && systemctl list-units --no-legend --state=active,activating,deactivating '{PREFIX}*'; }}
        while at_work | grep -q '{PREFIX}'; do sleep 0.2; done
        cd {FOLDER} && tar -cf - dump $(ls | grep 'argv$') | base64
    """
    packed = lab.run(node, command, input=base64.b64encode(_archive(batch)).decode(), timeout=900).stdout
    found: dict[int, list[str]] = {}
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None and member.name.endswith(".argv"):
                words = content.read().decode("utf-8", "surrogateescape").split("\0")
                found[int(member.name.removesuffix(".argv"))] = words[:-1]
    return found


@pytest.mark.parametrize("node", ["w1", "w2"])
def test_what_systemd_makes_of_units_and_environment_files(lab: Lab, node: str) -> None:
    release = int(lab.run(node, "systemctl --version").stdout.split()[1])
    batch: list[tuple[Case, Sources, bool]] = []
    for case in cases():
        sources = case.sources(len(batch), release)
        batch.append((case, sources, False))
        # An edit of a variable that is also put in whole would change that word, and is refused.
        case = replace(case, fragment=case.fragment.replace(b" . ${A}", b""))
        after = _edited(case.sources(len(batch), release))
        # A flag that lands before the script is one of the shell itself, which does not start with it.
        if after is not None and b"sh $A" not in case.fragment:
            batch.append((case, after, True))
    got = _run(lab, node, [sources for _, sources, _ in batch])
    outcomes = [Outcome(case, _said(sources), got.get(number), edited) for number, (case, sources, edited) in enumerate(batch)]
    wrong = [str(outcome) for outcome in outcomes if not outcome.agrees]
    assert not wrong, f"{len(wrong)} of {len(outcomes)} differ:\n" + "\n".join(wrong)
    # Guards against a batch that agrees because nothing ran.
    assert sum(outcome.got is not None for outcome in outcomes) > 250
    assert sum(outcome.got is None for outcome in outcomes) > 20
    changed = [outcome.got for outcome in outcomes if outcome.edited and outcome.got is not None]
    assert len(changed) > 100
    for argv in changed:
        gates = flags.effective_gates(argv)
        assert (gates["Alpha"], gates["Beta"], "Gamma" in gates) == (True, False, False), argv
    left = lab.run(
        node, f"ls -d {FOLDER} /run/systemd/system/{PREFIX}* 2>/dev/null; systemctl list-units --all --no-legend '{PREFIX}*'", check=False
    )
    assert left.stdout == ""
