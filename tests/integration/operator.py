"""What an operator does: runs pyinfra from the project's root; and what a bystander sees on the nodes meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar

from tests.integration import warm
from tests.lab import Lab
from tests.lab.tools import spent

ROOT = Path(__file__).resolve().parents[2]
# Alpha and off in every minor that the lab is made with, known to every component, harmless when on.
GATE = "HPAScaleToZero"
# On and locked since 1.35 (InPlacePodVerticalScaling is GA there).
LOCKED = "InPlacePodVerticalScaling"
MANIFESTS = "/etc/kubernetes/manifests"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err

    def ended(self, code: int) -> Outcome:
        """This, and it did end with that exit status."""
        assert self.code == code, self.all
        return self

    @property
    def plan(self) -> str:
        """The plan as it was shown, without the run's name."""
        found = re.search(
            r"^Plan of run \S+: (.*?)(?=\n\n(?:node |PLANNED,|\[1/\d+\][^\n]*\n  \S+ )|\Z)", self.out, re.DOTALL | re.MULTILINE
        )
        return found.group(1).strip() if found else ""


def inventory_of_the_lab(*more: str) -> str:
    """The text of an inventory for another folder: the groups `control_plane` and `workers` as inventories/lab.py has them, which knows
    which lab is meant, and then the lines of `more`."""
    source = str(ROOT / "inventories/lab.py")
    lines = ["import runpy", f"_lab = runpy.run_path({source!r})", "control_plane = _lab['control_plane']", "workers = _lab['workers']"]
    return "\n".join([*lines, *more, ""])


def environment() -> dict[str, str]:
    # Images of Python often forbid it to keep what it compiles, and then each command compiles all of roles/.
    return {**os.environ, "PYINFRA_PROGRESS": "off", "PYTHONDONTWRITEBYTECODE": ""}


def pyinfra(deploy: str, *arguments: str, inventory: str = "inventories/lab.py", timeout: float = 1800, brief: bool = False) -> Outcome:
    """`brief` is for what prepares a test or puts things back (tests/integration/warm.py)."""
    with spent("deploys"), TemporaryFile("w+") as out, TemporaryFile("w+") as err, open(os.devnull) as nothing:
        files = (nothing.fileno(), out.fileno(), err.fileno())
        process = warm.Process([inventory, f"deploys/{deploy}.py", *arguments], environment(), files, brief=brief)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Outcome(code, out.read(), err.read())


class Started:
    """An operator's command that runs while the test does something else. Its output is read as it comes."""

    _all: ClassVar[list[Started]] = []

    def __init__(self, deploy: str, *arguments: str, hold: str = "", inventory: str = "inventories/lab.py") -> None:
        words = [inventory, f"deploys/{deploy}.py", *arguments]
        self.lines: list[str] = []
        reading, writing = os.pipe()
        self._output = os.fdopen(reading)
        with open(writing, "w") as output, open(os.devnull) as nothing:
            self.process = warm.Process(words, environment(), (nothing.fileno(), output.fileno(), output.fileno()), hold=hold)
        self._all.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._output:
            for line in self._output:
                self.lines.append(line)

    @property
    def out(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str, seconds: float = 600) -> None:
        """Until the output has `text`; AssertionError when the command ends without, or after `seconds`."""
        # It costs nothing to look here: what is to be done at this word should be done soon.
        try:
            wait_for(lambda: text in self.out or not self._reader.is_alive(), f"{text!r} in the output", seconds, every=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.out}") from None
        assert text in self.out, f"it ended without {text!r}:\n{self.out}"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 1800) -> Outcome:
        with spent("deploys"):
            code = self.process.wait(timeout=seconds)
        self._reader.join(timeout=30)
        return Outcome(code, self.out, "")

    @classmethod
    def end_all(cls) -> bool:
        """Kill what still runs; True where the cluster's lock was left behind: something was killed, now or by the test."""
        for started in cls._all:
            if started.process.poll() is None:
                started.process.kill()
        codes = [started.process.wait() for started in cls._all]
        cls._all.clear()
        return any(code not in (0, 1, 3) for code in codes)


# daytwo's record on a node; on the first control-plane node of a run, who holds the cluster. A run locks the file beside it.
_RECORD = "/var/lib/daytwo"
_HELD = f"{_RECORD}/cluster"


def holder_of_cluster(lab: Lab, host: str = "") -> str:
    """Who holds the cluster, as the host that has its lock says it; "" for nobody."""
    return lab.run(host or lab.control_planes[0], f"cat {_HELD}", check=False).stdout


def wait_for_the_lock(lab: Lab, host: str = "") -> None:
    """Until the run that was killed, or cut off, locks it no more."""
    asked = host or lab.control_planes[0]
    wait_for(lambda: lab.run(asked, f"flock -n {_HELD}.lock true", check=False).returncode == 0, "the lock to be let go")


def release_cluster(lab: Lab, host: str = "") -> None:
    """As if the run that was killed had never held the cluster. A node that has no record of daytwo's holds nothing."""
    lab.run(host or lab.control_planes[0], f"[ ! -d {_RECORD} ] || flock -w 60 {_HELD}.lock rm -f {_HELD}")


def end_started(lab: Lab) -> bool:
    """What a test leaves running, or holding the cluster, would spoil the next one. True where something was killed."""
    killed = Started.end_all()
    if killed:
        release_cluster(lab)
    return killed


def run_of(told: Outcome | Started) -> str:
    """The name of the run whose plan was shown."""
    found = re.search(r"Plan of run (\S+):", told.out)
    assert found, told.out
    return found[1]


def says(told: Outcome, *words: str) -> None:
    """Wherever its lines end."""
    flat = " ".join(told.all.split())
    for word in words:
        assert word in flat, f"{word!r} is not in:\n{told.all}"


def refused(told: Outcome, *words: str) -> None:
    assert told.code == 1, told.all
    says(told, "REFUSED, nothing was written", *words)


def wait_for(check: Callable[[], object], what: str, seconds: float = 300, every: float = 0.5) -> None:
    """Until `check()` is true. AssertionError after `seconds`, which are many: a machine may have other work."""
    end = time.monotonic() + seconds
    with spent("tests waiting for evidence"):
        while not check():
            assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
            time.sleep(every)


def data(**values: str) -> list[str]:
    """--data key=value, one each. Gates go to all components unless told otherwise: tests of a change want one wherever they look,
    and GATE is read by two of the four."""
    if "feature_gates" in values and "components" not in values:
        values.setdefault("all_components", "true")
    return [word for key, value in values.items() for word in ("--data", f"{key}={value}")]


def files(lab: Lab, node: str) -> dict[str, str]:
    """sha256 of every file that a change of gates could touch on a node. (The unit at boot comes with the first change, and stays.)"""
    told = lab.run(
        node,
        "find /etc/kubernetes /etc/kubernetes-node /etc/default /etc/systemd /usr/lib/systemd/system /srv /var/lib/kubelet "
        "-xdev -type f -not -path '*/pods/*' -not -path '*/pki/*' -not -name '*_state*' -not -name 'daytwo-recover.*' -print0 2>/dev/null | xargs -0 sha256sum",
    ).stdout
    return {path: digest for digest, path in (line.split("  ", 1) for line in told.splitlines())}


def processes(lab: Lab, node: str) -> dict[str, tuple[str, ...]]:
    """PID, start time and arguments of the kubelet and the control-plane components on a node."""
    # systemd calls a unit active before its process has the program's name: it forks first.
    started = "for i in $(seq 100); do pidof kubelet >/dev/null || ! systemctl -q is-active kubelet && break; sleep 0.1; done"
    told = lab.run(
        node,
        f"{started}; for name in kubelet kube-apiserver kube-controller-manager kube-scheduler; do for pid in $(pidof $name); do "
        "echo \"$name $pid $(sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 20) $(tr '\\000' ' ' </proc/$pid/cmdline)\"; done; done",
    ).stdout
    return {words[0]: tuple(words[1:]) for words in (line.split() for line in told.splitlines())}


def gates_of(arguments: tuple[str, ...]) -> str:
    """What the last --feature-gates of a command line says."""
    found = [word.partition("=")[2] for word in arguments if word.startswith("--feature-gates=")]
    return found[-1] if found else ""


def effective(lab: Lab, node: str, gate: str) -> bool:
    """The gate as the node's kubelet has it, by its metrics."""
    text = lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics")
    found = re.search(rf'^kubernetes_feature_enabled{{name="{gate}",[^}}]*}} (\d)', text, re.MULTILINE)
    assert found, f"{gate} is not in the metrics of {node}"
    return found.group(1) == "1"


def pods(lab: Lab) -> dict[str, tuple[int, str, str]]:
    """Restart count, container ID and start time of the working pods."""
    items = json.loads(lab.kubectl("get", "pods", "-n", "default", "-o", "json"))["items"]
    found = {}
    for item in items:
        state = item["status"]["containerStatuses"][0]
        found[item["metadata"]["name"]] = (state["restartCount"], state["containerID"], state["state"]["running"]["startedAt"])
    return found


def forget(lab: Lab, *nodes: str) -> None:
    """As if daytwo had never been on these nodes (all, when none is named): no record, no unit at boot. No change may be in flight."""
    boot = "daytwo-recover.*"
    gone = f"rm -rf {_RECORD} /etc/systemd/system/{boot} /etc/systemd/system/multi-user.target.wants/{boot}; systemctl daemon-reload"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: lab.run(node, gone), nodes or lab.nodes))


@contextlib.contextmanager
def talking(lab: Lab, node: str) -> Iterator[None]:
    """The login shell of this node prints before each command, on both outputs, as on many companies' machines."""
    # Not before those of the tests themselves.
    words = """\
case $BASH_EXECUTION_STRING in "sh -c "*)
    echo "*** authorised use only, host $(hostname) ***"
    echo "you have mail" >&2
    printf 'state=confirmed\\ndaytwo 1\\nend\\n> ' ;;
esac
"""
    lab.run(
        node,
        "[ ! -e /root/.bashrc ] || mv /root/.bashrc /root/.bashrc.kept; cat - /root/.bashrc.kept 2>/dev/null >/root/.bashrc; :",
        input=words,
    )
    try:
        yield
    finally:
        lab.run(node, "rm -f /root/.bashrc; [ ! -e /root/.bashrc.kept ] || mv /root/.bashrc.kept /root/.bashrc", check=False)


def ssh_uses(lab: Lab, node: str, since: str) -> int:
    """Commands and transfers of one run over SSH since a journal cursor, as the node's own sshd counts them.

    A run has one connection (one port) for all it does; the looks of this test have another one, which is left out.
    """
    listed = f"echo $SSH_CONNECTION; journalctl -t sshd -t sshd-session --after-cursor '{since}' --output cat --no-pager"
    own, _, journal = lab.run(node, listed).stdout.partition("\n")
    ports = Counter(re.findall(r"Starting session: .* port (\d+)", journal))
    return max(count for port, count in ports.items() if port != own.split()[1])


def journal_cursor(lab: Lab, node: str) -> str:
    told = lab.run(node, "journalctl -t sshd -t sshd-session --lines 1 --show-cursor --output cat --no-pager").stdout
    return told.rsplit("-- cursor: ", 1)[1].strip()


def cut_ssh(lab: Lab, node: str) -> None:
    """Cut every SSH connection of root to a node, from the node's side, but the one that this command comes by."""
    lab.run(node, "for pid in $(pgrep -f '^sshd.*: root@notty'); do [ $pid = $PPID ] || kill $pid; done")


def ready(lab: Lab, node: str) -> bool:
    """The node's own API server says so."""
    asked = "curl -ks -o /dev/null -w '%{http_code}' https://127.0.0.1:6443/readyz"
    return lab.run(node, asked, check=False).stdout == "200"
