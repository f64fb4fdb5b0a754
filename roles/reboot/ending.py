"""How a control-plane node ends before its reboot: its API server while its etcd still runs (templates/ending.sh.j2). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from roles.engine.kube import Object, namespace_and_name
from roles.engine.kube.fields import spec_of
from roles.engine.scripts import filled
from roles.engine.timeouts import patient

#: What is only for this boot. Nobody but root can write there.
FOLDER = "/run/daytwo-reboot"
API_SERVER, ETCD = "kube-apiserver", "etcd"
#: Seconds that a pod has to end if its manifest does not say it (pkg/apis/core/v1/defaults.go), and the most that daytwo waits.
GRACE, MOST_GRACE = 30, 600
# Seconds. The clients of the two first have no connection to them; etcd gives its leadership away (etcdserver: Server.Stop).
_QUICK = 10
_KILLED = 5
# systemd itself kills what hangs in the kubelet's unit after 90 s, if its TimeoutStopSec does not say otherwise.
_STOP = 120
# Locks may delay a shutdown (logind.conf(5), InhibitDelayMaxSec).
_BEGIN = 150


@dataclass(frozen=True)
class EndedComponent:
    """`pod`: NAMESPACE_NAME of its static pod on the node. `seconds`: how long it has to end; then it is killed, or left to systemd."""

    program: str
    pod: str
    seconds: int
    kill: bool = False


@dataclass(frozen=True)
class Ending:
    """`kubelet` is the name of its unit."""

    kubelet: str
    components: tuple[EndedComponent, ...]
    folder: str = FOLDER

    @property
    def seconds(self) -> int:
        """The longest time that all of it may take."""
        return int(patient(_STOP) + patient(_BEGIN)) + sum(one.seconds + _KILLED for one in self.components) + 60

    def script(self) -> str:
        return filled(
            "ending.sh.j2",
            unit=self.kubelet,
            folder=self.folder,
            components=self.components,
            stop_seconds=int(patient(_STOP)),
            killed_seconds=_KILLED,
            begin_seconds=int(patient(_BEGIN)),
        )


def plan_ending(kubelet: str, static: Mapping[str, str], pods: Collection[Object]) -> Ending | None:
    """`static`: NAMESPACE_NAME of the node's static pods, by program; `pods`: those of the node. None for a node without an API server."""
    if API_SERVER not in static:
        return None
    server = static[API_SERVER]
    # In order: first those that only ask the API server.
    asking = [EndedComponent(name, pod, int(patient(_QUICK))) for name, pod in static.items() if name not in (API_SERVER, ETCD)]
    ended = [*asking, EndedComponent(API_SERVER, server, grace(pods, server), kill=True)]
    if ETCD in static:
        ended.append(EndedComponent(ETCD, static[ETCD], int(patient(_QUICK))))
    return Ending(kubelet, tuple(ended))


def grace(pods: Collection[Object], static: str) -> int:
    """The seconds that a static pod (NAMESPACE_NAME) has to end, by its mirror pod."""
    for pod in pods:
        if "_".join(namespace_and_name(pod)) == static:
            found = spec_of(pod).get("terminationGracePeriodSeconds")
            if type(found) is int and found > 0:
                return min(found, MOST_GRACE)
    return GRACE
