"""An SSH server on loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_SUCCESS

OWN, OTHER = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


class Server:
    """An SSH server on loopback with these keys that takes the password `x` and forwards. `tried` counts the passwords it was shown. It runs
    a command by the words that `shell` gives."""

    def __init__(self, *keys: paramiko.PKey, port: int = 0) -> None:
        self.keys, self.tried = keys, 0
        self.shell: Callable[[str], list[str]] = lambda command: []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._made: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            transport = _Transport(peer)
            for key in self.keys:
                transport.add_server_key(key)
            self._made.append(transport)
            transport.start_server(event=threading.Event(), server=_Door(self))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # else whoever waits for the next one keeps the port open
        self._socket.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection, and take new ones."""
        for transport in self._made:
            transport.close()


class _Transport(paramiko.Transport):
    """As sshd: a command starts after the reply that it was taken (RFC 4254, 6.5). One that ends at once would else close before it."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.taken: list[threading.Thread] = []

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)
        if data.asbytes()[:1] == cMSG_CHANNEL_SUCCESS and self.taken:
            self.taken.pop().start()


class _Door(paramiko.ServerInterface):
    def __init__(self, owner: Server) -> None:
        self._owner = owner

    def get_allowed_auths(self, username: str) -> str:
        return "password,none"

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL if username == "jump" else paramiko.AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self._owner.tried += 1
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        words = self._owner.shell(command.decode())
        transport: Any = channel.get_transport()
        transport.taken.append(threading.Thread(target=_carry_out, args=(channel, words), daemon=True))
        return True


def _carry_out(channel: paramiko.Channel, words: list[str]) -> None:
    """As sshd does: the command's three streams are those of the channel."""
    done = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    to_stdin: Any = done.stdin

    def pour() -> None:
        with contextlib.suppress(OSError):
            while data := channel.recv(4096):
                to_stdin.write(data)
                to_stdin.flush()
            to_stdin.close()

    def drain(source: Any, send: Callable[[bytes], None]) -> None:
        with contextlib.suppress(OSError):
            for data in iter(lambda: source.read1(4096), b""):
                send(data)

    drains = ((done.stdout, channel.sendall), (done.stderr, channel.sendall_stderr))
    threads = [threading.Thread(target=drain, args=one) for one in drains]
    for thread in [*threads, threading.Thread(target=pour, daemon=True)]:
        thread.start()
    for thread in threads:
        thread.join()
    if channel.closed:
        done.terminate()
    with contextlib.suppress(OSError):
        channel.send_exit_status(done.wait() & 0xFF)
        channel.close()
