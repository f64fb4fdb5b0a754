"""python -m tests.lab.picture FILE.svg: runs daytwo in the lab on a terminal of its own, and draws what was seen there.

Nothing in the picture is made up: each line was printed by a real run, in its order. Left out are the lines that LEFT_OUT names, and
what reaches beyond the right edge; outcomes are given a colour. Lines come in as they did then, but faster; a viewer without
animation, or who asked for none, sees all of them at once.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab import Lab

COLUMNS = 118
# pyinfra's colours on a dark ground.
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "90": "#8b949e"}
WIDTH, HEIGHT, MARGIN = 7.83, 18, 16  # of a character and a line at 13px, in px
SPEED, LONGEST = 6.0, 0.9  # faster by this much, and no pause longer than this many seconds
GATE = "MemoryQoS"
SCENES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("the change, proven in each running process", ("feature_gates", f"feature_gates={GATE}=true", "only=w1,w2"), 0),
    (
        "a change that would break the node: it is put back, and the run halts",
        ("feature_gates", "feature_gates=NoSuchGate=true", "only=w1,w2", "components=kubelet", "allow_unknown_gates=true"),
        1,
    ),
)
# Left out: pyinfra's own lines around the run; the steps between beginning and end of a change; what the picture has no room for.
LEFT_OUT = re.compile(
    r"--> |    \[\w+\] |    Loading: |    (Operation|Grand total|Feature gates \|) "
    r"|  w\d kubelet: (step|state|healthy)|    (--- |@@ )|     \S|    will be proven"
    r"|etcd: |LEFT OUT|To restart these|Record of the run|All of it lies|WARNING|NOT THE SAME|  \| journal: (?!.*unrecognized)"
)


@dataclass(frozen=True)
class Line:
    """A line as it was printed, with its escape sequences, and the second since the beginning."""

    at: float
    text: str


def record(words: Sequence[str], cwd: Path) -> tuple[int, list[Line]]:
    """Run a command on a new terminal of this width. Returns its exit status and lines."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYINFRA_PROGRESS": "off"}
    child = subprocess.Popen(words, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    begun, rest, lines = time.monotonic(), b"", list[Line]()
    while True:
        ended = child.poll() is not None
        # The end of the process is looked for, too: with gevent loaded (pyinfra does), the terminal does not tell of it.
        if not select.select([terminal], [], [], 0 if ended else 0.2)[0]:
            if ended:
                break
            continue
        try:
            got = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not got:
            break
        *whole, rest = (rest + got).split(b"\n")
        lines += [Line(time.monotonic() - begun, line.decode("utf-8", "replace").rstrip("\r")) for line in whole]
    os.close(terminal)
    return child.wait(), lines


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def cut(lines: Sequence[Line]) -> list[Line]:
    """Without what LEFT_OUT names; runs of empty lines are one, and none stands at the ends."""
    kept: list[Line] = []
    for line in lines:
        text = plain(line.text).rstrip()
        if LEFT_OUT.match(text) or (not text and (not kept or not plain(kept[-1].text).strip())):
            continue
        kept.append(line)
    while kept and not plain(kept[-1].text).strip():
        kept.pop()
    return kept


def spans(text: str) -> Iterator[tuple[str, str]]:
    """Pieces of a line with their CSS, up to the right edge."""
    left, bold, colour = COLUMNS, False, ""
    pieces = re.split(r"\x1b\[([0-9;?]*)([A-Za-z])", text)
    for index in range(0, len(pieces), 3):
        if index:
            codes = pieces[index - 2].split(";") if pieces[index - 1] == "m" else []
            for code in codes:
                if code in ("", "0"):
                    bold, colour = False, ""
                elif code in ("1", "22"):
                    bold = code == "1"
                elif code == "39" or code in COLOURS:
                    colour = COLOURS.get(code, "")
        piece = pieces[index]
        if len(piece) > left:
            piece = piece[: max(left - 1, 0)] + "…"
        if piece and left > 0:
            yield piece, ("font-weight:700;" if bold else "") + (f"fill:{colour}" if colour else "")
        left -= len(piece)


def emphasised(text: str) -> str:
    """What daytwo prints has no colours of its own; the outcome is what the eye is to find."""
    if "\x1b" in text:
        return text
    text = re.sub(r"\bconfirmed\b", "\x1b[32mconfirmed\x1b[0m", text)
    text = re.sub(r"\b(HALTED|reverted|failed)\b", "\x1b[31m\\1\x1b[0m", text, count=1)
    text = re.sub(r"^( +\+(?!\+).*)$", "\x1b[32m\\1\x1b[0m", text)
    return re.sub(r"^( +-(?!-).*)$", "\x1b[31m\\1\x1b[0m", text)


def svg(lines: Sequence[Line], title: str) -> str:
    """A picture of a terminal, complete in itself."""
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    height = len(lines) * HEIGHT + 2 * MARGIN + 24
    drawn = []
    for number, line in enumerate(lines):
        pieces = "".join(
            f'<tspan style="{css}">{html.escape(piece)}</tspan>' if css else html.escape(piece) for piece, css in spans(line.text)
        )
        if pieces:
            y = MARGIN + 24 + HEIGHT * (number + 1) - 5
            drawn.append(f'<text x="{MARGIN}" y="{y}" style="animation-delay:{line.at:.2f}s">{pieces}</text>')
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 18 * n}" cy="18" r="5.5" fill="{c}"/>' for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">\n'
        "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;white-space:pre;"
        "animation:in .01s both}@keyframes in{from{opacity:0}}@media(prefers-reduced-motion:reduce){text{animation:none}}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>{dots}\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def scene(said: str, command: str, begun: float, lines: Sequence[Line]) -> list[Line]:
    """What one command adds to the picture, from this second on."""
    shown = [Line(begun, f"\x1b[90m# {said}\x1b[0m"), Line(begun + 0.4, f"\x1b[1m$ {command}\x1b[0m")]
    at, last = begun + 1.2, 0.0
    for line in cut(lines):
        at += min((line.at - last) / SPEED, LONGEST)
        last = line.at
        shown.append(Line(at, emphasised(line.text)))
    return shown


def main() -> int:
    target = Path(sys.argv[1])
    lab = Lab()
    root = Path(__file__).resolve().parents[2]
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    shown: list[Line] = []
    for said, (deploy, *values), status in SCENES:
        words = [f"deploys/{deploy}.py", *(word for value in values for word in ("--data", value)), "-y"]
        ended, lines = record([pyinfra, "inventories/lab.py", *words], root)
        if ended != status:
            print("\n".join(line.text for line in lines), f"\nexit status {ended}, and {status} is what the picture tells", file=sys.stderr)
            return 1
        if shown:
            shown.append(Line(shown[-1].at, ""))
        begun = shown[-1].at + 1.5 if shown else 0.0
        shown += scene(said, " ".join(["pyinfra inventories/prod.py", *words]), begun, lines)
    undo = ["deploys/feature_gates.py", "--data", f"feature_gates={GATE}=absent", "--data", "only=w1,w2", "-y"]
    record([pyinfra, "inventories/lab.py", *undo], root)
    target.write_text(svg(shown, f"daytwo on Kubernetes {lab.version}: a change proven on two nodes, and one that is put back"))
    print(f"{target}: {len(shown)} lines, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
