"""The certificate that a server presents, and whether it is valid: a TLS handshake through SSH, without a request."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass

from roles.engine.api import errors
from roles.engine.api.client import TIMEOUT
from roles.engine.bridge.channels import Transport
from roles.engine.timeouts import patient
from roles.engine.tunnels.tunnel import Peer, Tunnel


@dataclass(frozen=True)
class Served:
    """The certificate that a server presents, as DER (None: it presents none), and why it is not valid for its address by the given
    authority ("": it is). `absent`: nothing serves there at all."""

    certificate: bytes | None
    problem: str = ""
    absent: bool = False


def served(transport: Transport, host: str, server: tuple[str, int], authority: str, what: str, timeout: float = TIMEOUT) -> Served:
    """Two handshakes with `server` from the node `host`: verified by `authority` (PEM) and by the server's address; if that fails, one that
    only shows the certificate. `what` is the server, for messages. No client certificate is presented.

    Raises ForwardingForbidden, ApiConnectionLost, Timeout.
    """
    problem = ""
    for verify in (True, False):
        context = ssl.create_default_context(cadata=authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        peer = Peer(what, "the cluster's CA", "", "another way")
        tunnel = Tunnel(transport, server, host, context=context, name=server[0], peer=peer)
        try:
            return Served(tunnel.handshake(time.monotonic() + patient(timeout)), problem)
        except errors.TLS as error:
            problem = problem or error.verify_message or error.rule
            if verify and error.verify_message:
                continue
            return Served(None, problem)
        except errors.Unreachable as error:
            return Served(None, error.rule, absent=True)
    raise AssertionError("the second handshake verifies nothing")


def presented(transport: Transport, host: str, server: tuple[str, int], what: str, newest: ssl.TLSVersion | None = None) -> Served:
    """One handshake that verifies nothing: the certificate that a server shows to a client that knows TLS up to `newest` only.

    Raises ForwardingForbidden, ApiConnectionLost, Timeout.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if newest is not None:
        context.maximum_version = newest
    tunnel = Tunnel(transport, server, host, context=context, name=server[0], peer=Peer(what, "nobody", "", "another way"))
    try:
        return Served(tunnel.handshake(time.monotonic() + patient(TIMEOUT)))
    except errors.TLS as error:
        return Served(None, error.rule)
    except errors.Unreachable as error:
        return Served(None, error.rule, absent=True)
