"""Hosts of a pyinfra run: their connections and commands, refusals, and the tasks that drive them.

Written for pyinfra 3.10 (api/host.py, connectors/ssh.py, connectors/util.py, api/operations.py). Upstream is moving to asyncio; then only
this package changes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import shlex
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pyinfra import context
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, all_argument_meta, pop_global_arguments
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.connectors import get_all_connectors
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import (
    SUDO_ASKPASS_ENV_VAR,
    CommandOutput,
    OutputLine,
    _ensure_su_askpass_set_for_host,
    _ensure_sudo_askpass_set_for_host,
    execute_command_with_sudo_retry,
    make_unix_command,
    make_unix_command_for_host,
)

from roles.engine import folding, timeouts
from roles.engine.bridge import command_line, host_keys, progress, sudo, terminal, unforeseen, unreachable
from roles.engine.bridge.channels import CHANNEL_ERRORS, Transport
from roles.engine.bridge.tasks import AsyncResult, Event, Lock, Pool, Queue, Timeout, sleep, spawn
from roles.engine.bridge.unforeseen import RunRefused
from roles.engine.framed import MOST_COMPLAINED, Framed, frame, not_begun
from roles.engine.harmless import in_list, one_line
from roles.engine.inputs import names
from roles.engine.remote import Answer, ConnectionLost, RemoteError
from roles.engine.transaction import Refusal, mask_text

T = TypeVar("T")
R = TypeVar("R")

# daytwo itself reports an API server that is down for a moment; paramiko would print a line for each try.
logging.getLogger("paramiko.transport").setLevel(logging.CRITICAL)
terminal.guard()
host_keys.guard()
unreachable.guard()

CONTROL_PLANE_GROUP = "control_plane"
# The interval of keepalives on an idle connection, so that a dead peer is noticed.
KEEPALIVE_SECONDS = 15
# The same as in config.py, which is for pyinfra's own command.
CONNECT_SECONDS = 20
#: So many hosts are asked at the same time over their SSH connections; their answers cost this machine little.
PARALLEL = 100
# Bytes; a longer line is read in parts.
_LONGEST_LINE = 1 << 26
# Between two tries to reconnect.
RECONNECT_PAUSE = 2.0


class Feed(Queue):  # type: ignore[misc]  # gevent gives its queue no type
    """The standard input of a running command: texts, and None to close it."""


class Remote:
    """One host of the inventory. It runs scripts and returns their output."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._connecting = Lock()
        self.commands = 0

    @property
    def name(self) -> str:
        return str(self._host.name)

    @property
    def groups(self) -> list[str]:
        return [str(group) for group in self._host.groups]

    @property
    def address(self) -> str:
        """The name or address by which pyinfra reaches the host, as the inventory has it."""
        return str(self._host.data.get("ssh_hostname") or self.name)

    @property
    def is_control_plane(self) -> bool:
        """True for a control-plane node: it is read even if --limit leaves it out."""
        return CONTROL_PLANE_GROUP in self.groups

    def data(self, key: str, default: Any = None) -> Any:
        """Inventory data of the host: --data, then host, then group_data, in pyinfra's order."""
        return self._host.data.get(key, default)

    @property
    def data_keys(self) -> set[str]:
        """The names of all data of the host, also from --data; without those in `own_keys`, which daytwo ignores."""
        return set(self._host.data.dict()) - set(names(self._host.data.get("own_keys")) or ())

    def data_origin(self, key: str) -> str:
        """The place that sets the effective value of a data key of the host, for people."""
        inventory = self._host.inventory
        if key in inventory.get_override_data():
            return "--data"
        if key in inventory.get_host_data(self.name):
            return "the host's data in the inventory"
        # The group that comes last wins (pyinfra/api/inventory.py, get_groups_data).
        groups = [group for group in self.groups if key in inventory.get_group_data(group)]
        return f"group_data/{(groups or ['all'])[-1]}.py"

    @property
    def connected(self) -> bool:
        return bool(self._host.connected)

    def connect(self) -> bool:
        """Connect if not connected. For hosts that --limit leaves out but that daytwo must read."""
        self._host.connect(reason="to read the control plane" if self.is_control_plane else "to read all nodes")
        return self.connected

    @property
    def unreachable(self) -> str:
        """A sentence that names the host, and says why it could not be connected to."""
        why = unreachable.why(self._host)
        return f"{self.name}: unreachable{f': {why}' if why else ''}"

    @property
    def alive(self) -> bool:
        """Connected, and the connection is not known to be lost."""
        transport = self.transport
        return self.connected and (not self.uses_ssh or (transport is not None and transport.is_active()))

    def ensure_connected(self, within: float = 0.0) -> None:
        """Connect unless there is a live connection. Tries at least once, and retries for `within` seconds; then raises ConnectionLost."""
        until = time.monotonic() + within
        # Without a lock, tasks that connect at the same time would replace each other's connection.
        with self._connecting:
            while not self.alive:
                try:
                    if self.connected:
                        self.reconnect()
                    elif not self.connect():
                        raise ConnectionLost(self.unreachable)
                except ConnectionLost:
                    if time.monotonic() >= until:
                        raise
                    sleep(RECONNECT_PAUSE)

    def drop(self) -> None:
        """Close a connection that no longer answers, so that all tasks that wait for it notice."""
        if (transport := self.transport) is not None:
            transport.close()

    def reconnect(self) -> None:
        """Replace a lost connection. Raises ConnectionLost if the host does not answer."""
        try:
            self._host.connector.connect()
        except Exception as error:
            raise ConnectionLost(f"{self.name}: {error}") from error

    @property
    def uses_ssh(self) -> bool:
        """True if the host is reached over SSH, not with @local, @docker or the like."""
        return isinstance(self._host.connector, SSHConnector)

    @property
    def is_checked(self) -> bool:
        """True if its key was checked by the rules of the operator's own ssh, or if no connection needs that."""
        connector = self._host.connector
        return not isinstance(connector, SSHConnector) or connector.client is None or host_keys.is_checked(connector.client)

    @property
    def transport(self) -> Transport | None:
        """The SSH transport, for tunnels; None if the connector is not SSH (@local, @docker)."""
        connector = self._host.connector
        if isinstance(connector, SSHConnector) and connector.client is not None:
            return cast("Transport | None", connector.client.get_transport())
        return None

    def run(
        self,
        script: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,
        on_line: Callable[[str], None] | None = None,
        feed: Feed | None = None,
    ) -> Answer:
        """Run a POSIX sh script with the inventory's settings (_sudo and the like); `on_line` gets each line of stdout at once.

        With `feed`, standard input stays open after `stdin`, and gets the items of `feed` until None. What the host's login shell prints is
        no part of the answer (framed.py). Raises ConnectionLost if the connection is lost, RemoteError on a timeout (seconds), and if the
        login shell does not start the command.
        """
        self.commands += 1
        text, word = frame(script)
        said, complained = Framed(word, on_line or (lambda line: None)), Framed(word, most=MOST_COMPLAINED)
        arguments, _ = pop_global_arguments(self._host.state, self._host, {})
        connector_arguments = {key: value for key, value in arguments.items() if key in CONNECTOR_ARGUMENT_KEYS}
        for key in ("_timeout", "_stdin", "_success_exit_codes", "_get_pty"):
            connector_arguments.pop(key, None)
        try:
            with Timeout(timeout, TimeoutError) if timeout else Timeout(None):
                if isinstance(self._host.connector, SSHConnector):
                    code = self._run_over_ssh(text, stdin, feed, connector_arguments, said, complained)
                elif feed is not None:
                    raise RemoteError(f"{self.name}: daytwo changes nodes only over SSH, and this host has another connector")
                else:
                    success, output = self._host.run_shell_command(
                        StringCommand(text), _stdin=[stdin] if stdin else None, **connector_arguments
                    )
                    code = 0 if success else 1
                    for heard, lines in ((said, output.stdout_lines), (complained, output.stderr_lines)):
                        heard.add_all(lines)
        except TimeoutError as error:
            why = "" if said.begun else f"; {not_begun(said.before, map(mask_text, complained.before))}"
            raise RemoteError(f"{self.name}: no answer within {timeout:g} s{why}") from error
        except CHANNEL_ERRORS as error:
            raise ConnectionLost(f"{self.name}: the SSH connection was lost: {error}") from error
        if not said.begun:
            raise RemoteError(f"{self.name}: {not_begun(said.before, map(mask_text, complained.before), code)}")
        return Answer(code, said.lines, [mask_text(line) for line in complained.lines])

    def _run_over_ssh(
        self, script: str, stdin: str | None, feed: Feed | None, arguments: dict[str, Any], said: Framed, complained: Framed
    ) -> int:
        # pyinfra's own run_shell_command returns the output only at the end, and without the exit status.
        connector = cast(SSHConnector, self._host.connector)

        def execute() -> tuple[int, CommandOutput]:
            password = _sudo_password(self._host, arguments)
            try:
                with sudo.first_use(self.name, password):
                    code, output = once()
                    if code and not said.begun and (why := sudo.refused([line.line for line in output.combined_lines], password)):
                        raise RemoteError(f"{self.name}: {why}")
                    if said.begun:
                        sudo.accepted(password)
            except sudo.WrongPassword as error:
                raise RemoteError(str(error)) from None
            return code, output

        def once() -> tuple[int, CommandOutput]:
            command, password = _become(self._host, script, arguments)
            client = connector.client
            transport = client.get_transport() if client else None
            if client is None or transport is None or not transport.is_active():
                raise ConnectionLost(f"{self.name}: there is no SSH connection")
            transport.set_keepalive(KEEPALIVE_SECONDS)
            to_stdin, from_stdout, _ = client.exec_command(command)
            channel = from_stdout.channel
            raw: list[OutputLine] = []
            begun = Event()
            errors = spawn(_read, channel.makefile_stderr("rb"), complained, raw, channel.close)
            feeder = spawn(_pour, password, begun, stdin or "", feed, to_stdin)
            try:
                for _ in _lines(channel.makefile("rb"), said, raw, "stdout"):
                    if said.begun:
                        begun.set()
                    elif said.too_much:
                        raise RemoteError(f"{self.name}: {not_begun(said.before, ())}")
                    if said.too_long:
                        break
                if said.too_long or complained.endless:
                    raise RemoteError(f"{self.name}: the answer of a command has no end; look at what runs there")
                errors.get()
                # The status arrives after the last output; a channel that is closed earlier never gets it.
                code = channel.recv_exit_status()
            finally:
                errors.kill()
                feeder.kill()
                channel.close()
            if code == -1:
                raise ConnectionLost(f"{self.name}: the SSH connection was lost while a command ran")
            return code, CommandOutput(raw)

        return int(execute_command_with_sudo_retry(self._host, cast(Any, arguments), execute)[0])


def _become(host: Host, script: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """The command line that becomes root and runs a script, and its first input: sudo's password, or "".

    pyinfra would pass the password in the arguments of `env`, which everybody on the node can read for a moment. Here a shell reads it,
    byte by byte up to the line feed (POSIX, read), into its environment, which only its own user and root can read. pyinfra's askpass
    script gets it from there.
    """
    password = _sudo_password(host, arguments)
    if not password:
        return make_unix_command_for_host(host.state, host, StringCommand(script), **arguments).get_raw_value(), ""
    answering = cast(Host, _Answering(host))
    askpass = _ensure_sudo_askpass_set_for_host(answering, temp_dir=arguments.get("_temp_dir"))
    more = {"_sudo_password": "-", "_sudo_askpass_path": None}  # as with a password, but without its value
    if arguments.get("_su_user") and arguments.get("_su_password"):
        more["_su_askpass_path"] = _ensure_su_askpass_set_for_host(host, temp_dir=arguments.get("_temp_dir"))
    command = make_unix_command(StringCommand(script), **{**arguments, **more}).get_raw_value()
    read = f"IFS= read -r {SUDO_ASKPASS_ENV_VAR} || exit 1; export {SUDO_ASKPASS_ENV_VAR}"
    asks = f"SUDO_ASKPASS={shlex.quote(askpass)}" if sudo.is_accepted(password) else sudo.asks_once(askpass)
    return f"sh -c {shlex.quote(f'{read}; {asks}; export SUDO_ASKPASS; exec {command}')}", f"{password}\n"


def _sudo_password(host: Host, arguments: dict[str, Any]) -> str:
    """The password of sudo for a host, "" for none."""
    found = arguments.get("_sudo_password") or host.connector_data.get("prompted_sudo_password")
    return str(found) if found and arguments.get("_sudo") else ""


class _Answering:
    """A host for pyinfra's own preparation of sudo, which takes the first line of an output for its answer."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.connector_data = host.connector_data
        self.get_temp_dir_config = host.get_temp_dir_config

    def run_shell_command(self, command: str) -> tuple[bool, CommandOutput]:
        text, word = frame(command)
        success, output = self._host.run_shell_command(text)
        return success, CommandOutput([OutputLine("stdout", line) for line in Framed(word).add_all(output.stdout_lines).lines])


def _lines(source: Any, framed: Framed, raw: list[OutputLine], kind: str) -> Iterator[None]:
    """Read an output to its end. `raw` gets the lines that are no part of the answer: pyinfra looks there for sudo's question."""
    while data := source.readline(_LONGEST_LINE):
        line = data.decode("utf-8", "replace").rstrip("\n")
        if not framed.begun:
            raw.append(OutputLine(kind, line))
        framed.add(line)
        yield


def _read(source: Any, framed: Framed, raw: list[OutputLine], give_up: Callable[[], None]) -> None:
    """Read the complaints of a command; `give_up` if they have no end, which ends its other output, too."""
    for _ in _lines(source, framed, raw, "stderr"):
        if framed.endless:
            give_up()
            return


def _pour(password: str, begun: Event, first: str, feed: Feed | None, to_stdin: Any) -> None:
    """The standard input of a command. Only the password precedes its start: a start-up file that reads gets nothing of a script."""
    # A write to a lost channel fails; the task that reads its output notices that.
    with contextlib.suppress(*CHANNEL_ERRORS):
        if password:
            to_stdin.write(password)
            to_stdin.flush()
        if first or feed is not None:
            begun.wait()
        for text in itertools.chain([first] if first else [], iter(feed.get, None) if feed is not None else ()):
            to_stdin.write(text)
            to_stdin.flush()
        to_stdin.close()


@dataclass
class Fleet:
    """The hosts of one pyinfra run, in the order of the inventory.

    `targets` are connected and selected by --limit (or all); `others` are left out by --limit; `unreachable` are selected but could not
    be connected to; `inventory` are all.
    """

    targets: list[Remote]
    others: list[Remote]
    unreachable: list[Remote]
    inventory: list[Remote]

    @property
    def given(self) -> frozenset[str]:
        """The keys of --data that are not the operator's own."""
        first = self.inventory[0]
        return frozenset(key for key in first.data_keys if first.data_origin(key) == "--data")

    @property
    def lock_host(self) -> Remote:
        """The host of the cluster's lock: the first control-plane node of the inventory, or its first host if it has none."""
        return next((remote for remote in self.inventory if remote.is_control_plane), self.inventory[0])

    def helpers(self) -> list[Remote]:
        """The control plane that --limit excludes, for a deploy that only reads: the API is there."""
        return [remote for remote in self.others if remote.is_control_plane and (remote.connected or remote.connect())]

    def expect_away(self, remote: Remote) -> None:
        """That this host could not be connected to is no failure of the run: it is off, as asked, or the run turns it on."""
        if remote in self.unreachable:
            self.unreachable.remove(remote)
            remote._host.state.failed_hosts.discard(remote._host)

    @property
    def keeper(self) -> Remote | None:
        """The host whose records may speak of the cluster: that of the lock, if it is a control-plane node. Root there can write to the
        cluster anyway; root on another host cannot."""
        return self.lock_host if self.lock_host.is_control_plane else None

    def each(
        self, remotes: Sequence[Remote], work: Callable[[Remote], R], parallel: int = PARALLEL, doing: str = ""
    ) -> dict[str, R | Exception]:
        """Call `work` for many hosts at the same time; an exception becomes that host's result. `doing` is for the line of progress, such
        as `read`."""
        done = itertools.count(1)

        def one(remote: Remote) -> R:
            try:
                return work(remote)
            finally:
                progress.doing(f"{doing} {next(done)} of {len(remotes)} hosts" if doing else "")

        results = at_once([functools.partial(one, remote) for remote in remotes], parallel)
        progress.doing("")
        return {remote.name: result for remote, result in zip(remotes, results, strict=True)}


def at_once(works: Iterable[Callable[[], R]], parallel: int = PARALLEL) -> list[R | Exception]:
    """The results of many functions, in their order, `parallel` of them at the same time; an exception becomes the result."""

    def guarded(work: Callable[[], R]) -> R | Exception:
        try:
            return work()
        except Exception as error:
            return error

    return list(Pool(parallel).imap(guarded, works))


_results: weakref.WeakKeyDictionary[Any, dict[str, AsyncResult[Any]]] = weakref.WeakKeyDictionary()
_fleets: weakref.WeakKeyDictionary[Any, Fleet] = weakref.WeakKeyDictionary()
_left: weakref.WeakSet[Any] = weakref.WeakSet()


def current_fleet() -> Fleet:
    """The hosts of the pyinfra run that the calling deploy code belongs to."""
    state = context.host.state
    fleet = _fleets.get(state)
    if fleet is None:
        fleet = _fleets[state] = _fleet(state)
    return fleet


def open_inventory(path: str, project: str, connect: bool = True) -> Fleet:
    """The hosts of an inventory file without pyinfra's own command, for tests of an operator's nodes; connected only with `connect`.

    Like pyinfra, it reads group_data from the file's folder and from `project`. A host that does not answer is `unreachable`.
    """
    from pyinfra_cli.inventory import make_inventory  # noqa: PLC0415 - part of the command line, needed only here

    state = State()
    with context.ctx_state.use(state):  # the loader records in it which file it reads
        inventory: Inventory = command_line.check_inventory(path, make_inventory(path, cwd=project))
    state.init(inventory, Config(CONNECT_TIMEOUT=CONNECT_SECONDS))
    if connect:
        connect_all(state)
    return _fleet(state)


def _fleet(state: State) -> Fleet:
    active = {host.name for host in state.active_hosts}
    limited = {host.name for host in state.inventory if state.is_host_in_limit(host)}
    remotes = {host.name: Remote(host) for host in state.inventory}
    if unchecked := [name for name, remote in remotes.items() if not remote.is_checked]:
        raise refuse(
            f"{', '.join(unchecked)}: connected without daytwo's config.py, so the host key was not checked by the rules of your ssh; "
            "start pyinfra in daytwo's folder, without another --config"
        )
    with refusing(ValueError):
        timeouts.set_factor(remote.data(timeouts.KEY) for remote in remotes.values())
        folding.set_run(len(limited), (remote.data(folding.KEY) for name, remote in remotes.items() if name in limited))
    return Fleet(
        targets=[remote for name, remote in remotes.items() if name in active],
        others=[remote for name, remote in remotes.items() if name not in limited],
        unreachable=[remote for name, remote in remotes.items() if name in limited - active],
        inventory=list(remotes.values()),
    )


def run_once(key: str, work: Callable[[Fleet], T]) -> T:
    """Call `work` once for the whole run, whichever host's deploy code comes first; all hosts get its result or its error.

    It runs in its own greenlet, outside pyinfra's bounded host pool, so that it can wait for hosts that have not entered the
    pool yet. A refusal is a DeployError, which stops pyinfra before any operation runs.
    """
    command_line.require_guard()
    state = context.host.state
    with unforeseen.refused():
        fleet = current_fleet()
    per_state = _results.setdefault(state, {})
    result = per_state.get(key)
    if result is None:
        result = per_state[key] = AsyncResult()
        spawn(_settle, result, work, fleet)
    return cast(T, result.get())


def _settle(result: AsyncResult[T], work: Callable[[Fleet], T], fleet: Fleet) -> None:
    # gevent reports an error that leaves a greenlet; a refusal is for the operator.
    try:
        with unforeseen.refused():
            result.set(work(fleet))
    except BaseException as error:
        result.set_exception(error)


def refuse(message: str, reasons: Iterable[object] = (), verdict: str = "") -> DeployError:
    """The error that stops a pyinfra run in the prepare phase, also with -y; `reasons` follow the message, one per line; `verdict`: as
    RunRefused has it."""
    return RunRefused(one_line(message), [in_list(reason) for reason in folding.merged(Refusal.texts(reasons))], verdict)


def refusals(reasons: Iterable[object]) -> DeployError:
    """The error that stops a run and names all `reasons`."""
    return refuse("refused, nothing was written on any node:", reasons, "REFUSED, nothing was written on any node")


@contextlib.contextmanager
def refusing(errors: type[Exception] | tuple[type[Exception], ...], about: str = "") -> Iterator[None]:
    """Within it, these errors refuse the run; `about` precedes the words of one."""
    try:
        yield
    except errors as error:
        words = (isinstance(error, OSError) and error.strerror) or error
        raise refusals([f"{about}{words}" if about else error]) from None


def stop(reasons: Iterable[object]) -> None:
    """Raises DeployError with all reasons if there are any."""
    if found := list(reasons):
        raise refusals(found)


def exit_with(code: int) -> None:
    """End pyinfra in its prepare phase with an exit status of daytwo: that of pyinfra says only whether a host failed.

    Called by the deploy code of each host; the first call raises SystemExit. gevent's hub passes that to pyinfra's main greenlet, which
    disconnects from all hosts before it exits (pyinfra_cli/cli.py, cli).
    """
    state = context.host.state
    if state not in _left:
        _left.add(state)
        raise SystemExit(code)


def as_deploy(title: str, face: Callable[[], None]) -> Callable[[], None]:
    """The function as a pyinfra deploy that shows `title`."""
    return cast("Callable[[], None]", deploy(title)(face))


def current_host() -> str:
    """Name of the host whose deploy code runs now."""
    return str(context.host.name)


def pyinfra_keys() -> frozenset[str]:
    """The data keys of pyinfra itself: how to connect, how to become root, how to run an operation."""
    connectors = {key for connector in get_all_connectors().values() for key in getattr(connector, "data_meta", {})}
    return frozenset(connectors | (all_argument_meta.keys() - {"name"}))


def on_interrupt(handle: Callable[[], None]) -> None:
    """From now on Ctrl-C (and SIGTERM, as CI systems send it) calls `handle`, and no longer ends pyinfra with exit status 0.

    `handle` must not wait; it may raise SystemExit. It runs in its own greenlet, from which gevent's hub passes SystemExit to pyinfra's
    main greenlet. A signal interrupts any running greenlet, and one of paramiko's would ignore SystemExit (as threading does).
    """
    terminal.keep_on()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: spawn(handle))


@operation(is_idempotent=True)  # type: ignore[untyped-decorator]
def run_on_host(work: Callable[[str], bool]) -> Iterator[FunctionCommand]:
    """One operation for one host: it waits for `work(host name)`; True is success, False fails the host."""

    # pyinfra checks the return value only if the function has these two parameters.
    def result(state: State, host: Host) -> bool:
        try:
            return work(host.name)
        except DeployError:
            raise
        except Exception as error:
            unforeseen.say(error)
            return False

    yield FunctionCommand(result, (), {})


def whole(answers: Mapping[str, R | Exception]) -> dict[str, R]:
    """The results of `Fleet.each` if no host's result is an exception; else raises the first one."""
    found: dict[str, R] = {}
    for host, answer in answers.items():
        if isinstance(answer, Exception):
            raise answer
        found[host] = answer
    return found


def hosts_by_name(remotes: Iterable[Remote]) -> dict[str, Remote]:
    return {remote.name: remote for remote in remotes}
