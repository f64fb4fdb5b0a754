"""A change on a real node, struck at one of its steps; then only looked at.

A case holds change.sh at a step (held.py), lets one thing die, and waits until the node has come to rest by itself. Files, process
and record must then tell one and the same story.
"""

from __future__ import annotations

import json
import queue
import random
import re
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.integration import operator
from tests.integration.operator import GATE, MANIFESTS, Started, data, wait_for
from tests.lab import Lab

HOME = "/var/lib/daytwo"
# Alpha and off like GATE, without effect in a kubelet.
SECOND_GATE = "StorageVersionAPI"
BAD = "NoSuchGate"
UNIT = "/etc/systemd/system/kubelet.service"
# Where a package has its units.
PACKAGED = "/usr/lib/systemd/system/kubelet.service"

KILL, SSH, OPERATOR, REBOOT, POWER = "apply process killed", "SSH lost", "operator killed", "reboot", "power cut"
FAULTS = (KILL, SSH, OPERATOR, REBOOT, POWER)
RESTARTS = (REBOOT, POWER)

# How a change comes to a step: the verb, and for a revert what brought it about.
APPLY, CONFIRM = "apply", "confirm"
FAILED, DIED, DEADLINE, VERDICT, BOOT = (
    "revert of a failed apply",
    "revert after a killed apply",
    "revert at the deadline",
    "revert by verdict",
    "revert at boot",
)
REVERT_STEPS = ("revert", "restore 2", "restore 1", "reload-old", "restart-old", "wait-old", "finish", "clean")
STEPS = {
    APPLY: ("check", "stage", "arm", "place 1", "place 2", "daemon-reload", "restart", "wait", "applied"),
    CONFIRM: ("confirm", "clean"),
    FAILED: REVERT_STEPS,
}
# The same way back, begun by others: what matters there is who works on it, and who goes on once that one is dead.
FURTHER = (
    *((DIED, step, fault) for step in REVERT_STEPS for fault in (KILL, POWER)),
    *((DEADLINE, step, KILL) for step in REVERT_STEPS),
    *((VERDICT, step, fault) for step in REVERT_STEPS for fault in (KILL, SSH, OPERATOR)),
    *((BOOT, step, fault) for step in ("restore 2", "restore 1", "reload-old", "wait-old") for fault in (KILL, POWER)),
)
# Before anything was touched: what is ended there is refused.
UNTOUCHED = ("check", "stage", "arm")
# Steps that a change comes to only where the old process does not come back, and the test that shows them.
LADDER = {
    "restart-again": "test_crashes.py::test_a_kubelet_that_does_not_come_back_at_first",
    "restart-kubelet": "test_feature_gates.py::test_a_static_pod_that_does_not_come_back_by_itself",
    "remove-sandbox": "test_feature_gates.py::test_a_static_pod_that_does_not_come_back_by_itself",
}

# By whole arguments: the shell that this runs in names them, too.
KILL_SESSION = (
    "for cmdline in $(grep -lzx session /proc/[0-9]*/cmdline 2>/dev/null); do grep -qz '/change[.]sh$' $cmdline && "
    'found="$found $(echo $cmdline | cut -d / -f 3)"; done; kill -KILL $found'
)


@dataclass(frozen=True)
class Case:
    context: str
    step: str
    fault: str

    def __str__(self) -> str:
        return f"{self.context}, {self.step}: {self.fault}"

    @property
    def expected(self) -> set[str]:
        """How the change must end."""
        if self.context == CONFIRM:
            if self.step == "confirm" and self.fault in RESTARTS:
                # An operator's side that finds its way back before the node is down confirms.
                return {"reverted", "confirmed"} if self.fault == REBOOT else {"reverted"}
            return {"confirmed"}
        if self.context != APPLY:
            return {"reverted"}
        if self.fault == SSH:
            return {"confirmed"}
        return {"refused"} if self.step in UNTOUCHED and self.fault != OPERATOR else {"reverted"}

    @property
    def confirm_timeout(self) -> int:
        """The shortest that the case has time for: with nobody left to say anything it lasts that long."""
        waits_for_it = (self.context == APPLY and self.fault == OPERATOR) or self.context in (DIED, DEADLINE)
        if self.context == VERDICT:
            return 60
        return 45 if waits_for_it else 60 if self == Case(CONFIRM, "clean", KILL) else 90


def product() -> list[Case]:
    """Each step of apply, confirm and revert with each fault."""
    return [Case(context, step, fault) for context, steps in STEPS.items() for step in steps for fault in FAULTS]


def further() -> list[Case]:
    return [Case(*words) for words in FURTHER]


def selection(seed: int) -> list[Case]:
    """Each step once, each fault about equally often, in an order of the seed's."""
    chance = random.Random(seed)
    steps = [(context, step) for context, steps in STEPS.items() for step in steps]
    chance.shuffle(steps)
    return [Case(context, step, FAULTS[number % len(FAULTS)]) for number, (context, step) in enumerate(steps)]


# ---- steps


def steps_in_log(log: str) -> set[str]:
    return set(re.findall(r"^\d+ step: (.+)$", log, re.MULTILINE))


def steps_in_script(script: str) -> set[str]:
    """The names of all steps that a change.sh could come to; of numbered ones without the number."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
    return {name for line in lines for name in re.findall(r'(?<![\w$-])step "?([a-z][a-z-]*)', line)}


def without_a_case(steps: Iterable[str], cases: Sequence[Case]) -> list[str]:
    """Steps that are not struck by every fault; a numbered one may be told without its number."""
    struck = {(name, case.fault) for case in cases for name in (case.step, case.step.split(" ")[0])}
    return sorted(step for step in steps if step not in LADDER and any((step, fault) not in struck for fault in FAULTS))


# ---- one node


@dataclass(frozen=True)
class Side:
    """How a node is, with the change or without."""

    files: dict[str, str]
    arguments: tuple[str, ...]


class NeverCame(Exception):
    """The run ended without the step that was to be struck."""


class Lane:
    """A worker whose kubelet is changed again and again, with a cluster's lock of its own: it lies on the first host of the
    group control_plane, so lanes with different ones do not refuse each other.

    The node is made such that a good change goes through all steps that its `style` has: "plain" has a package's unit that reads no
    variable, so that a drop-in is made, with its directory; "flag" has a gate on the command line, from a drop-in; both have another gate in the
    config file. "config" is a kubeadm node as it is: one file, and arguments that stay.
    """

    component = "kubelet"
    # Seconds until a change has come to a step.
    patience = 300

    def __init__(self, lab: Lab, node: str, style: str, lock_host: str, folder: Path) -> None:
        self.lab, self.node, self.style, self.lock_host = lab, node, style, lock_host
        self.pod = f"crash-{node}"
        self.good = f"{GATE}=true" if style == "config" else f"{GATE}=true,{SECOND_GATE}=true"
        self.bad = {"plain": f"{BAD}=true,{SECOND_GATE}=true", "flag": f"{GATE}=true,{BAD}=true", "config": f"{BAD}=true"}[style]
        self.inventory = folder / f"{node}.py"
        planes = list(dict.fromkeys([lock_host, lab.control_planes[0]]))
        others = [name for name in [node] if name not in planes]
        self.inventory.write_text(
            operator.inventory_of_the_lab(
                "_all = {**dict(control_plane), **dict(workers)}",
                *(
                    f"{group} = [(_name, _all[_name]) for _name in {names}]"
                    for group, names in (("control_plane", planes), ("workers", others))
                ),
            )
        )
        self.before = self.after = Side({}, ())
        self.trace: set[str] = set()

    def can(self, case: Case) -> bool:
        """Whether a change of this node comes to the case's step."""
        return self.style != "config" or case.step not in ("place 2", "restore 2", "daemon-reload", "reload-old")

    def run(self, command: str, **more: object) -> str:
        return self.lab.run(self.node, command, **more).stdout  # type: ignore[arg-type]

    # ---- before the cases

    def set_up(self) -> None:
        """Make a pristine node what its style says."""
        if self.style == "plain":
            self.run(f"sed -i -e '/KUBELET_EXTRA_ARGS/d' -e 's/--v=2 .*/--v=2/' {UNIT} && mv {UNIT} {PACKAGED}")
            self.run(f"for link in /etc/systemd/system/*.wants/kubelet.service; do ln -sf {PACKAGED} $link; done; systemctl daemon-reload")
            self.run(f"printf 'featureGates:\\n  {SECOND_GATE}: false\\n' >>/etc/kubernetes-node/kubelet.yaml")
        if self.style == "flag":
            dropin = f'[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--feature-gates={GATE}=false"\n'
            self.run(f"mkdir -p {UNIT}.d && cat >{UNIT}.d/50-gates.conf", input=dropin)
            self.run(f"printf 'featureGates:\\n  {SECOND_GATE}: false\\n' >>/var/lib/kubelet/config.yaml")
        # A kubelet that keeps ending is then known for one within seconds. With less, systemd would start it again in the very moment
        # that its files are back: it would need no restart then, and that step would not come.
        self.run("sed -i 's/^RestartSec=.*/RestartSec=4/' $(systemctl show -P FragmentPath kubelet)")
        self.run("systemctl daemon-reload && systemctl restart kubelet")
        self.lab.run_pod(self.pod, self.node)
        config = "etc/kubernetes-node/kubelet.yaml" if self.style == "plain" else "var/lib/kubelet/config.yaml"
        dropins = f"{UNIT}.d/50-gates.conf".removeprefix("/") if self.style == "flag" else ""
        self.run(f"mkdir -p /root/kept && cd / && cp -a --parents {config} {dropins} /root/kept/")
        self.clean()

    def mend(self) -> None:
        """Make the lane new after a failure."""
        self.lab.reset(self.node)
        self.set_up()

    def learn(self, failing: bool = False) -> None:
        """How the node is before and after a good change, and each step on the way. With `failing` also the steps of a change
        that fails."""
        self.before = self.look()
        # systemd may have started the kubelet again just when its files were back: then nothing was left to restart, once in a while.
        for _ in range(5 if failing else 0):
            assert self.start(self.bad, 90).end().code == 1
            self.trace |= self.steps()
            self.clean()
            if "restart-old" in self.trace:
                break
        done = self.start(self.good, 90).end()
        assert done.code == 0, done.out
        self.trace |= self.steps()
        self.after = self.look()
        self.clean(confirmed=True)

    def steps(self) -> set[str]:
        return steps_in_log(self.run(f"cat {HOME}/changes/*/log"))

    def clean(self, confirmed: bool = False) -> None:
        """As if daytwo had never been on this node, and the gates as before."""
        operator.release_cluster(self.lab, self.lock_host)
        self.run(
            "systemctl stop daytwo-recover.timer 2>/dev/null; "
            f"rm -rf {HOME} /etc/systemd/system/daytwo-recover.* /etc/systemd/system/multi-user.target.wants/daytwo-recover.service"
        )
        if confirmed:
            made = [path for path in self.after.files if path not in self.before.files]
            self.run(f"rm -rf {' '.join(made)}; cp -a /root/kept/. /" if made else "cp -a /root/kept/. /")
        self.run(f"systemctl daemon-reload; systemctl reset-failed; {'systemctl restart kubelet' if confirmed else ':'}")
        self.at_rest()

    # ---- what there is to see

    def look(self) -> Side:
        """Every file that a change could touch, with its owner and mode, and each directory; the arguments of the process."""
        told = self.run(
            "find /etc/systemd /etc/kubernetes /etc/kubernetes-node /etc/default /var/lib/kubelet/config.yaml -xdev -not -path '*/pki*' "
            "-printf '%p\\t%y %m %u:%g\\n' 2>/dev/null; true"
        )
        listed = dict(line.split("\t") for line in told.splitlines())
        sums = operator.files(self.lab, self.node)
        both = {path: f"{listed.get(path, '')} {sums.get(path, '')}" for path in {*listed, *sums}}
        files = {path: told for path, told in both.items() if "daytwo-recover" not in path}
        return Side(files, operator.processes(self.lab, self.node).get(self.component, ())[2:])

    def state(self) -> str:
        return self.run(f"sed -n 's/^state=//p' {HOME}/changes/*/state").strip()

    def left(self) -> str:
        """What is left of a change that should be over, or that still goes on."""
        return self.run(
            f"ls -A {HOME}/active; ls -d {HOME}/ended-* {HOME}/*.new {HOME}/changes/*/states 2>/dev/null; "
            "find /etc /srv /run /usr/local /var/lib/kubelet -xdev -name '.daytwo' -o -xdev -name '*.daytwo' -o -xdev -name 'daytwo-ask.*'; "
            "systemctl list-units --all --plain --no-legend 'daytwo-*' | grep -Ev 'daytwo-recover.(service|timer) .* (inactive|failed) '; "
            "pgrep -fa '[c]hange.sh|[r]ecover.sh'; true"
        ).strip()

    def container(self) -> tuple[bool, int, str]:
        """Of the working pod: whether it runs, how often it was restarted, and which container it is."""
        status = json.loads(self.lab.kubectl("get", "pod", self.pod, "-o", "json"))["status"]["containerStatuses"][0]
        return status["ready"] and "running" in status["state"], status["restartCount"], status.get("containerID", "")

    def serves(self) -> bool:
        """The kubelet that runs now is healthy, has renewed the node's lease itself, and the node is Ready."""
        told = self.run(
            "pid=$(systemctl show -P MainPID kubelet); [ $pid != 0 ] && curl -fs http://127.0.0.1:10248/healthz >/dev/null && "
            "echo $(($(date +%s) - $(ps -o etimes= -p $pid)))",
            check=False,
        ).strip()
        if not told.isdigit():
            return False
        lease = self.lab.kubectl("get", "lease", "-n", "kube-node-lease", self.node, "-o", "jsonpath={.spec.renewTime}", check=False)
        ready = self.lab.kubectl(
            "get", "node", self.node, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}", check=False
        )  # fmt: skip
        return ready == "True" and bool(lease) and datetime.fromisoformat(lease).timestamp() >= int(told) - 1

    def at_rest(self) -> None:
        wait_for(self.serves, f"the kubelet of {self.node} to serve")

    # ---- a case

    def start(self, gates: str, confirm_timeout: int, hold: str = "", **more: str) -> Started:
        wanted = data(
            feature_gates=gates,
            only=self.node,
            components=self.component,
            allow_unknown_gates=str(BAD in gates).lower(),
            confirm_timeout=str(confirm_timeout),
            **more,
        )
        return Started("feature_gates", "-y", *wanted, hold=hold, inventory=str(self.inventory))

    def play(self, case: Case) -> str:
        """As `_play`; a kubelet that systemd has started again just when its files were back needs no restart, and then this step does
        not come: such a case is begun anew."""
        for _ in range(4):
            try:
                return self._play(case)
            except NeverCame:
                assert self.state() == "reverted" and not self.left()
                self.clean()
        raise AssertionError(f"{self.node} ({self.style}): {case}: it came to its end four times without this step")

    def _play(self, case: Case) -> str:
        """The whole case, and the node made ready for the next. Returns how the change ended; AssertionError with all there is
        to see where something is not as it must be."""
        container = self.container()
        more = {"soak": "15"} if case.context == VERDICT else {}
        run = self.start(self.bad if case.context == FAILED else self.good, case.confirm_timeout, case.step, **more)
        try:
            try:
                self._come_to(case, run)
            except NeverCame:
                if case.step != "restart-old":
                    raise AssertionError(f"it never came to this step:\n{run.out}") from None
                raise
            alive = self._strike(case, run)
            told = run.end() if alive else None
            state = self._judge(case, told, container)
            self.clean(confirmed=state == "confirmed")
            return state
        except NeverCame:
            raise
        except Exception as error:
            raise AssertionError(f"{self.node} ({self.style}): {case}\n{error}\n{self._evidence(run)}") from error
        finally:
            run.process.kill()
            run.process.wait()

    def _come_to(self, case: Case, run: Started) -> None:
        if case.context == VERDICT:
            run.wait_for("soaking for")
            run.send(signal.SIGINT)
        elif case.context in (DIED, DEADLINE, BOOT):
            run.wait_for("waiting until it is healthy\n")
            if case.context == DIED:
                self._kill("main", f"daytwo-{self._change(run)}.service")
            elif case.context == DEADLINE:
                run.process.kill()
            else:
                self.lab.kill(self.node)
                self.lab.start(self.node)
        until_held = f"timeout 10 sh -c 'until [ -d {HOME}/held ]; do sleep 0.1; done'"

        def held() -> bool:
            if self.lab.run(self.node, until_held, check=False).returncode == 0:
                return True
            if case.context != DEADLINE and run.process.poll() is not None:
                raise NeverCame
            return False

        wait_for(held, f"the change to be held:\n{run.out}", self.patience)

    def _change(self, run: Started) -> str:
        found = re.search(r"Plan of run (\S+):", run.out)
        assert found, run.out
        return f"{found.group(1)}-{self.node}-{self.component}"

    def _kill(self, which: str, unit: str) -> None:
        self.run(f"systemctl kill --kill-whom={which} --signal=KILL {unit}")

    def _strike(self, case: Case, run: Started) -> bool:
        """The fault; True when the operator's side lives on."""
        change = self._change(run)
        match case.fault:
            case "apply process killed":
                self._kill_worker(case, change)
            case "SSH lost":
                operator.cut_ssh(self.lab, self.node)
                if case.context in (APPLY, FAILED):
                    run.wait_for("reconnecting, the node continues")
                self.run(f"touch {HOME}/go")
            case "operator killed":
                run.process.kill()
                run.process.wait()
                self.run(f"touch {HOME}/go")
            case "reboot":
                self.lab.reboot(self.node)
            case "power cut":
                self.lab.kill(self.node)
                self.lab.start(self.node)
        return case.fault != OPERATOR and case.context != DEADLINE

    def _kill_worker(self, case: Case, change: str) -> None:
        """SIGKILL to the process that is at the step."""
        match case.context:
            case "confirm":
                self.run(KILL_SESSION)
            case "revert after a killed apply":
                self._kill("control", f"daytwo-{change}.service")
            case "revert at the deadline":
                self._kill("main", f"daytwo-{change}-deadline.service")
            case "revert by verdict":
                self._kill("main", f"daytwo-{change}-revert.service")
            case "revert at boot" if case.step.startswith("restore"):
                self._kill("main", "daytwo-recover.service")
            case "revert at boot":
                self._kill("main", f"daytwo-{change}-deadline.service")
            case _:
                self._kill("main", f"daytwo-{change}.service")

    def _judge(self, case: Case, told: operator.Outcome | None, container: tuple[bool, int, str]) -> str:
        wait_for(lambda: not self.left(), "nothing to be left in flight", self.patience + 150)
        self.at_rest()
        state, now = self.state(), self.look()
        assert now.files in (self.before.files, self.after.files), self._differences(now)
        side = self.after if now.files == self.after.files else self.before
        assert (state == "confirmed") == (side is self.after), f"the record says {state}, the files are those {self._name(side)}"
        assert now.arguments == side.arguments, f"the files are those {self._name(side)}, the process has {now.arguments}"
        self._check_process(side is self.after)
        assert state in case.expected, f"it ended {state}, not {' or '.join(sorted(case.expected))}"
        if told is not None:
            assert (told.code == 0) == (state == "confirmed"), f"{state} on the node; the operator's side ended with {told.code}"
            rows = [re.split(" {2,}", line) for line in told.out.splitlines() if line.startswith(f"{self.node} ")]
            outcomes = {row[5] for row in rows if row[1:2] == [self.component] and len(row) > 5}
            assert outcomes == {state}, f"{state} on the node; the operator's table says {outcomes}"
            held = operator.holder_of_cluster(self.lab, self.lock_host)
            assert not held, f"the run ended and left the cluster's lock on {self.lock_host}:\n{held}"
        self._check_pod(container, case.fault in RESTARTS or case.context == BOOT)
        return state

    def _check_pod(self, before: tuple[bool, int, str], node_restarted: bool) -> None:
        if node_restarted:
            wait_for(lambda: self.container()[0] and self.container()[2] != before[2], "the pod to run again after the restart")
        else:
            assert self.container() == before, f"the working pod was {before} and is {self.container()}"

    def _check_process(self, changed: bool) -> None:
        for gate in (GATE, *([SECOND_GATE] if self.style != "config" else [])):
            found = operator.effective(self.lab, self.node, gate)
            assert found == changed, f"{gate} is {found} in the running kubelet"

    def _name(self, side: Side) -> str:
        return "after the change" if side is self.after else "before the change"

    def _differences(self, now: Side) -> str:
        lines = ["the files are neither as before nor as after the change:"]
        for path in sorted({*now.files, *self.before.files, *self.after.files}):
            found = [side.files.get(path, "absent") for side in (self.before, now, self.after)]
            if len(set(found)) > 1:
                lines += [f"  {path}", *(f"    {word}: {told}" for word, told in zip(("before", "now", "after"), found, strict=True))]
        return "\n".join(lines)

    def _evidence(self, run: Started) -> str:
        told = self.lab.run(
            self.node,
            f"cd {HOME}; echo '== {HOME}'; ls -lA . active changes/*; cat changes/*/state; echo '== log'; cat changes/*/log; "
            "echo '== processes'; ps -eo pid,ppid,args | grep '[c]hange.sh'; echo '== units'; systemctl list-units --all --no-legend 'daytwo-*'; systemctl is-active kubelet; "
            "echo '== journal'; journalctl --no-pager -o short-monotonic -n 80 -u 'daytwo-*'; journalctl --no-pager -o cat -n 15 -u kubelet",
            check=False,
        )
        return f"== the operator's side\n{run.out}\n{told.stdout}{told.stderr}"


class ControlPlane(Lane):
    """The API server of the first control-plane node, whose manifest is changed; the node and its kubelet are as they are."""

    component = "kube-apiserver"
    patience = 300

    def __init__(self, lab: Lab, folder: Path) -> None:
        node = lab.control_planes[0]
        super().__init__(lab, node, "config", node, folder)
        self.inventory = operator.ROOT / "inventories/lab.py"

    def mend(self) -> None:
        self.lab.reset()
        self.clean()

    def start(self, gates: str, confirm_timeout: int, hold: str = "", **more: str) -> Started:
        # An API server takes about a minute: the old one's grace period, and the time it must stay healthy.
        return super().start(gates, confirm_timeout + 65, hold, **more)

    def learn(self, failing: bool = False) -> None:
        """None of the cases ends with a change that stays."""
        self.before = self.look()

    def serves(self) -> bool:
        if self.lab.kubectl("get", "--raw", "/readyz", check=False) != "ok":
            return False
        told = self.lab.kubectl("get", "pods", "-n", "kube-system", "-l", "tier=control-plane", "-o", "json", check=False)
        states = [state for pod in json.loads(told or '{"items": []}')["items"] for state in pod["status"].get("containerStatuses", [])]
        own = self.run("curl -ks https://127.0.0.1:6443/readyz", check=False)
        return len(states) == 4 * len(self.lab.control_planes) and all(state["ready"] for state in states) and own == "ok"

    def at_rest(self) -> None:
        # A controller-manager that lost its API server is started again after up to 5 minutes.
        wait_for(self.serves, "the control plane to be whole", 600)

    def container(self) -> tuple[bool, int, str]:
        return True, 0, ""

    def _judge(self, case: Case, told: operator.Outcome | None, container: tuple[bool, int, str]) -> str:
        state = super()._judge(case, told, container)
        names = self.run(f"ls -A {MANIFESTS}").split()
        assert sorted(names) == sorted(f"{name}.yaml" for name in (*operator.COMPONENTS, "etcd")), names
        return state

    def _check_pod(self, before: tuple[bool, int, str], node_restarted: bool) -> None:
        """There is none of the test's own on this node."""

    def _check_process(self, changed: bool) -> None:
        assert not changed


# ---- many cases


def play_all(lanes: Sequence[Lane], cases: Sequence[Case]) -> list[str]:
    """Play the cases on the lanes, each on the first that is free and comes to its step.

    Returns what was wrong; tells each case with its seconds and how it ended, and the totals.
    """
    waiting = list(cases)
    lock = threading.Lock()
    failures: list[str] = []
    ended: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()

    def take(lane: Lane) -> Case | None:
        with lock:
            found = next((case for case in waiting if lane.can(case)), None)
            if found is not None:
                waiting.remove(found)
            return found

    def drive(lane: Lane) -> None:
        while (case := take(lane)) is not None:
            begun = time.monotonic()
            try:
                outcome = lane.play(case)
            except AssertionError as error:
                outcome = "FAILED"
                failures.append(str(error))
                lane.mend()
            seconds = time.monotonic() - begun
            ended.put((outcome, seconds))
            print(f"{lane.node:4} {lane.style:6} {seconds:5.0f} s  {outcome:10} {case}")

    begun = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        list(pool.map(drive, lanes))
    told = [ended.get() for _ in range(ended.qsize())]
    outcomes = {name: sum(outcome == name for outcome, _ in told) for name in sorted({outcome for outcome, _ in told})}
    print(
        f"{len(told)} cases on {len(lanes)} nodes in {time.monotonic() - begun:.0f} s, {sum(seconds for _, seconds in told) / len(told):.0f} s each: "
        + ", ".join(f"{number} {name}" for name, number in outcomes.items())
    )
    failures += [f"no lane comes to {case}" for case in waiting]
    return failures
