"""python -m tests.lab.picture FILE.svg: runs daytwo in the lab on a terminal of its own, and draws what it printed.

Nothing in the picture is invented: a real run printed each line, in this order. Left out are the lines that LEFT_OUT names, the plan of
all changes but the first, and what reaches beyond the right edge. Its colours are those that were printed; only the comments above the
commands are grey. The picture stands still, without a style sheet: whatever renders SVG shows the whole story.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab import Lab

COLUMNS = 118
# pyinfra's colours on a dark ground.
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea", "90": "#8b949e"}
WIDTH, HEIGHT, MARGIN, BAR = 7.83, 17, 16, 18  # of a character and a line at 13px, of the edge and of the title bar, in px
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
GATE = "MemoryQoS"
SCENES: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("a change: one node at a time, proven in the running process", ("feature_gates", f"feature_gates={GATE}=true", "nodes=w1,w2"), 0),
    (
        "a change that would break the node: the node reverts it by itself, and the run halts",
        ("feature_gates", "feature_gates=NoSuchGate=true", "nodes=w1,w2", "components=kubelet", "allow_unknown_gates=true"),
        1,
    ),
)
# Left out: empty lines; pyinfra's own lines around the run; the steps of a change between its beginning and its end; the rules of tables;
# what the picture has no room for.
LEFT_OUT = re.compile(
    r"$|--> |    \[\w+\] |    Loading: |    (Operation|Grand total|Feature gates \|) |----|Plan of run"
    r"|  w\d kubelet: (applying|writing|restoring|restarting|waiting|reverting|failed|process|healthy|stayed|proving)"
    r"|    (--- |@@ )|     +\S|    will be proven|    it is the canary|kubelet-config "
    r"|etcd: |w\d:|LEFT OUT|To restart these|Record of the run|Evidence from w\d|All details are on|WARNING|DIFFERS|  \| "
)
_CHANGE = re.compile(r"\[\d+/\d+\] ")
_OF_A_STEP = re.compile(r"  w\d kubelet: ")


def record(words: Sequence[str], cwd: Path) -> tuple[int, list[str]]:
    """Run a command on a new terminal of this width. Returns its exit status and its lines, with their escape sequences."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYINFRA_PROGRESS": "off"}
    child = subprocess.Popen(words, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    output = b""
    while True:
        ended = child.poll() is not None
        # The process is polled, too: with gevent loaded (pyinfra loads it), the terminal does not report its end.
        if not select.select([terminal], [], [], 0 if ended else 0.2)[0]:
            if ended:
                break
            continue
        try:
            got = os.read(terminal, 65536)
        except OSError:  # how Linux reports that the other end is closed
            break
        if not got:
            break
        output += got
    os.close(terminal)
    return child.wait(), [line.rstrip("\r") for line in output.decode("utf-8", "replace").split("\n")[:-1]]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def cut(lines: Sequence[str]) -> list[str]:
    """Without what LEFT_OUT names, whatever wraps below it too; of the changes only the first one's heading and plan; an empty line before
    a table."""
    kept: list[str] = []
    changes, begun, left_out = 0, False, COLUMNS
    for line in lines:
        text = plain(line).rstrip()
        indent = len(text) - len(text.lstrip())
        changes += bool(_CHANGE.match(text))
        begun = begun or bool(_OF_A_STEP.match(text))
        if (text and indent > left_out) or (changes > 1 and (_CHANGE.match(text) or (indent >= 4 and not begun))):
            continue
        # What is so far to the right after that is a cell of a table.
        drop = bool(LEFT_OUT.match(text)) and not (begun and indent > 20)
        left_out = indent if text and drop else COLUMNS
        if drop:
            continue
        kept += ["", line] if text.startswith("node  ") else [line]
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


def placed(line: str) -> Iterator[str]:
    """A line in SVG. Each cell has its own x: columns stay columns in any font, and where a renderer collapses spaces."""
    column = 0
    for piece, css in spans(line):
        style = f' style="{css}"' if css else ""
        for text in re.findall(r" {2,}|^ | $|(?:(?!  | $).)+", piece):
            x = f"{MARGIN + column * WIDTH:.2f}"
            yield f'<tspan x="{x}"{style}>{html.escape(text)}</tspan>' if text.strip() else text
            column += len(text)


def svg(lines: Sequence[str], title: str) -> str:
    """A picture of a terminal, complete in itself, and with a frame that shows on a dark page too."""
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    height = len(lines) * HEIGHT + 2 * MARGIN + BAR
    drawn = []
    for number, line in enumerate(lines):
        if pieces := "".join(placed(line)):
            # Browsers take the spaces of a text from its own attribute, not from that of a group.
            drawn.append(f'<text xml:space="preserve" x="{MARGIN}" y="{MARGIN + BAR + HEIGHT * (number + 1) - 5}">{pieces}</text>')
    dots = "".join(
        f'<circle cx="{MARGIN + 6 + 18 * n}" cy="18" r="5.5" fill="{c}"/>' for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">\n'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="#0d1117" stroke="#3d444d"/>{dots}\n'
        f'<g font-family="{FONT}" font-size="13" fill="#e6edf3">\n' + "\n".join(drawn) + "\n</g>\n</svg>\n"
    )


def typed(words: Sequence[str]) -> list[str]:
    """A command as an operator types it, in as many lines as it needs; an option and its value are one word here."""
    lines = ["$"]
    for word in words:
        if len(lines[-1]) + len(word) + 3 > COLUMNS:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {word}"
    return [f"\x1b[1m{line}\x1b[0m" for line in lines]


def scene(heading: str, words: Sequence[str], lines: Sequence[str]) -> list[str]:
    """What one command adds to the picture."""
    return [f"\x1b[90m# {heading}\x1b[0m", *typed(words), *cut(lines)]


def main() -> int:
    target = Path(sys.argv[1])
    lab = Lab()
    root = Path(__file__).resolve().parents[2]
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    shown: list[str] = []
    for heading, (deploy, *values), status in SCENES:
        words = [f"deploys/{deploy}.py", *(f"--data {value}" for value in values), "-y"]
        ended, lines = record([pyinfra, "inventories/lab.py", *" ".join(words).split()], root)
        if ended != status:
            print("\n".join(lines), f"\nexit status {ended}; the picture needs {status}", file=sys.stderr)
            return 1
        shown += [""] * bool(shown) + scene(heading, ["pyinfra", "inventories/lab.py", *words], lines)
    undo = ["deploys/feature_gates.py", "--data", f"feature_gates={GATE}=absent", "--data", "nodes=w1,w2", "-y"]
    record([pyinfra, "inventories/lab.py", *undo], root)
    target.write_text(svg(shown, f"daytwo on Kubernetes {lab.version}: a change proven on two nodes, and one that the node reverts"))
    print(f"{target}: {len(shown)} lines, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
