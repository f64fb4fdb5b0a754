"""Reads the signs of a changed process (signs.py): one command on its node for all of them, and a few requests."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from roles.engine.api import ApiConnectionLost, ApiFailure, Forbidden, NotFound, list_objects
from roles.engine.api.errors import Unauthorized, Unusable
from roles.engine.api.nodes import kubelet_path, node_lease
from roles.engine.bounds import read_json
from roles.engine.bridge import Remote
from roles.engine.bridge.tasks import Timeout, sleep
from roles.engine.editing import flag_values
from roles.engine.kube.fields import spec_of
from roles.engine.named_paths import KUBELET
from roles.engine.proof import node_signs, signs
from roles.engine.proof.cluster import Cluster
from roles.engine.proof.node_signs import NodeSigns, Wanted
from roles.engine.proof.signs import Found, Sign
from roles.engine.remote import RemoteError
from roles.engine.timeouts import patient
from roles.engine.tunnels.served import presented

# A kubelet that has started tells the API its Allocatable with its next look at the node (nodeStatusUpdateFrequency, 10 s).
WAIT_SECONDS = 25
_LOOK_AGAIN_SECONDS = 2
_APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class ProcessLook:
    """One process of one node. What it reads is read once."""

    def __init__(
        self, cluster: Cluster, remote: Remote, program: str, pid: str, node_name: str, argv: Sequence[str], serves: tuple[str, int] | None
    ) -> None:
        """`serves`: where a component serves; of a kubelet its /configz says it. Raises ApiFailure."""
        self._cluster, self._remote, self._argv = cluster, remote, argv
        self.program, self.pid, self.node_name = program, pid, node_name
        self.configuration: Mapping[str, Any] = cluster.configuration(node_name) if program == KUBELET else {}
        self.address = serves or kubelet_address(self.configuration)
        self.wanted = Wanted()

    @cached_property
    def node(self) -> NodeSigns:
        """Raises RemoteError, ValueError."""
        if self.wanted.nothing:
            return NodeSigns()
        answer = self._remote.run("sh -s", stdin=self.wanted.script(self.pid), timeout=patient(node_signs.SECONDS))
        return node_signs.parse(answer.stdout)

    def flag(self, name: str) -> tuple[str, ...]:
        return tuple(flag_values(self._argv, name))

    @cached_property
    def _api_node(self) -> dict[str, Any]:
        return self._cluster.node(self.node_name)

    def api_node(self) -> Mapping[str, Any]:
        return self._api_node

    def lease_seconds(self) -> int:
        return self._cluster.query(lambda api: node_lease(api, self.node_name)).duration

    def answers(self, path: str) -> bool | None:
        try:
            self.text(path)
            return True
        except (NotFound, Unusable):
            return False
        except (Unauthorized, Forbidden):
            return None

    def text(self, path: str) -> str:
        at = (self._remote.name, self.program)
        if self.program == KUBELET:
            return self._cluster.query(lambda api: api.get_raw(kubelet_path(self.node_name, path))).decode("utf-8", "replace")
        return self._cluster.query(lambda api: api.get_raw(path), at).decode("utf-8", "replace")

    def json(self, path: str) -> Mapping[str, Any]:
        with contextlib.suppress(ValueError):
            found = read_json(self._cluster.query(lambda api: api.get_raw(path)))
            return found if isinstance(found, dict) else {}
        return {}

    def certificate(self) -> bytes | None:
        transport = self._remote.transport
        return None if transport is None else presented(transport, self._remote.name, self.address, self.program).certificate

    def aggregated(self) -> Mapping[str, str]:
        found = self._cluster.query(lambda api: list_objects(api, _APISERVICES))
        served = [spec_of(item) for item in found if spec_of(item).get("service")]
        names = [(one.get("group"), one.get("version")) for one in served]
        return {f"{version}.{group}": self._silence(f"/apis/{group}/{version}") for group, version in names}

    def _silence(self, path: str) -> str:
        """Why a path does not answer through this process."""
        try:
            self.text(path)
        except ApiConnectionLost:
            raise
        except ApiFailure as error:
            return str(error)
        return ""

    def accepts_tls12(self) -> bool | None:
        """A handshake without TLS 1.3 works; None if none works, or nothing can be asked."""
        transport = self._remote.transport
        if transport is None:
            return None
        old = presented(transport, self._remote.name, self.address, self.program, ssl.TLSVersion.TLSv1_2)
        if old.certificate is not None:
            return True
        return False if self.certificate() is not None else None

    def again(self) -> None:
        """The next question reads again."""
        for name in ("node", "_api_node"):
            self.__dict__.pop(name, None)


def kubelet_address(configuration: Mapping[str, Any]) -> tuple[str, int]:
    """Where a kubelet serves, as seen from its node."""
    bound = str(configuration.get("address") or "")
    return ("127.0.0.1" if bound in ("", "0.0.0.0", "::") else bound, int(configuration.get("port") or 10250))  # noqa: S104 - a setting


def look_at(look: ProcessLook, names: Sequence[str], log: str, written: Mapping[str, str]) -> list[tuple[Sign, Found]]:
    """What the signs of some settings show. Waits a moment for those that may come later."""
    found = signs.signs_of(look.program, names)
    look.wanted = signs.wanted(look, [sign for _, sign in found], log, written)
    judged = [(sign, _judged(look, name, sign)) for name, sign in found]
    with Timeout(patient(WAIT_SECONDS), False):
        while any(sign.waits and (one.early or one.kind == "missing") for sign, one in judged):
            sleep(_LOOK_AGAIN_SECONDS)
            look.again()
            judged = [(sign, _judged(look, name, sign)) for name, sign in found]
    return judged


def _judged(look: ProcessLook, name: str, sign: Sign) -> Found:
    try:
        return sign.judge(look, signs.value_of(look, look.program, name))
    except ApiConnectionLost:
        raise
    except (ApiFailure, RemoteError, ValueError) as error:
        return signs.unknown(f"{sign.sign}: {error}")
