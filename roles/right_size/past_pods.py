"""Whose pod one was that is gone, by its name: a source that knows only names has its past. Pure.

Sources: pkg/apis/apps (a ReplicaSet is NAME-HASH of its Deployment), k8s.io/apiserver/pkg/storage/names/generate.go (five random characters
of ALPHABET, as the hash), pkg/controller/statefulset (NAME-ORDINAL), pkg/controller/cronjob (NAME-MINUTES of a Job).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from roles.right_size.workloads import SizedWorkload

_ALPHABET = "[bcdfghjklmnpqrstvwxz2456789]"
_FORMS = (
    (re.compile(rf"(.+)-{_ALPHABET}{{6,10}}-{_ALPHABET}{{5}}"), ("Deployment",)),
    (re.compile(rf"(.+)-{_ALPHABET}{{5}}"), ("DaemonSet", "ReplicaSet", "ReplicationController")),
    (re.compile(r"(.+)-[0-9]{1,6}"), ("StatefulSet",)),
    (re.compile(rf"(.+)-[0-9]{{8,10}}-{_ALPHABET}{{5}}"), ("CronJob",)),
)


class PodOwners:
    """`now`: the workloads of all pods that exist, by namespace and pod."""

    def __init__(self, now: Mapping[tuple[str, str], SizedWorkload]) -> None:
        self._now = now
        self._workloads = frozenset(now.values())

    def exists(self, namespace: str, pod: str) -> bool:
        return (namespace, pod) in self._now

    def of(self, namespace: str, pod: str) -> SizedWorkload | None:
        """The workload that a pod is of, or was of, among those that have pods now. None if the name of none fits, or of more than one."""
        if (there := self._now.get((namespace, pod))) is not None:
            return there
        found = {one for one in self._candidates(namespace, pod) if one in self._workloads}
        return found.pop() if len(found) == 1 else None

    @staticmethod
    def _candidates(namespace: str, pod: str) -> Iterator[SizedWorkload]:
        for form, kinds in _FORMS:
            if matched := form.fullmatch(pod):
                for kind in kinds:
                    yield SizedWorkload(kind, namespace, matched.group(1))
