"""Samples of earlier runs, kept in the operator's state directory: one file for each workload.

`$XDG_STATE_HOME/daytwo/use/CLUSTER/NAME.json`: CLUSTER is a hash of the UID of the namespace kube-system, NAME one of the workload's kind,
namespace and name, so no name of the cluster becomes a path. A file is replaced whole, and read again under a lock before it is, so that
two operators and a cron line can use the same directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roles.engine.bounds import read_json
from roles.engine.files import FILE_MODE, create_private, keep_newest, state_folder, write_whole
from roles.engine.timeouts import Deadline
from roles.right_size.samples import DAY, KEEP_DAYS, ClockError, Kill, Point, Read, SampleHistory, Span
from roles.right_size.workloads import SizedWorkload

#: The format of the files. Files of a newer one are neither read nor written.
FORMAT = 1
LOCK_SECONDS = 30.0
#: A larger file is not one that daytwo wrote.
MOST_BYTES = 64 * 2**20
#: Of one cluster; whoever may create workloads may create any number.
MOST_WORKLOADS = 50_000
_PAUSE = 0.2


class StoreError(Exception):
    """Samples could not be read or kept. Names the file and the way out."""


class FolderError(StoreError):
    """Nothing of the cluster can be kept now, of no workload."""


@dataclass(frozen=True)
class Store:
    """The samples of one cluster."""

    folder: Path

    @classmethod
    def of(cls, cluster: str) -> Store:
        """`cluster` is a UID."""
        return cls(state_folder("use", hashlib.sha256(cluster.encode()).hexdigest()[:16]))

    def path(self, workload: SizedWorkload) -> Path:
        whole = "\0".join((workload.kind, workload.namespace, workload.name))
        return self.folder / f"{hashlib.sha256(whole.encode()).hexdigest()[:40]}.json"

    def read(self, workload: SizedWorkload) -> dict[str, SampleHistory]:
        """By container; empty if nothing is kept. Raises StoreError."""
        path = self.path(workload)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise StoreError(f"{path}: it is too large to be daytwo's; move it away")
            found = read_json(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{path}: earlier samples cannot be read ({error.strerror or error}); fix its access rights") from None
        except ValueError as error:
            raise StoreError(f"{path}: earlier samples cannot be read ({error}); move the file away") from None
        if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:
            raise StoreError(f"{path}: a newer daytwo wrote it (format {found['format']}); use that one, or a later one")
        try:
            if SizedWorkload(**found["workload"]) != workload:
                raise ValueError("it is of another workload")
            return {str(name): _history(one) for name, one in found["containers"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            why = f"{type(error).__name__}: {error}"
            raise StoreError(f"{path}: earlier samples cannot be read ({why}); move the file away") from None

    def update(
        self, workload: SizedWorkload, change: Callable[[Mapping[str, SampleHistory]], Mapping[str, SampleHistory]]
    ) -> dict[str, SampleHistory]:
        """Read, change and replace the samples of a workload, under the lock of the cluster's directory; returns the new ones. Raises
        StoreError, and then the file is as it was; FolderError if no other workload's could be kept either."""
        try:
            create_private(self.folder)
            with self._locked():
                new = dict(change(self.read(workload)))
                containers = {name: _plain(one) for name, one in new.items()}
                text = json.dumps({"format": FORMAT, "workload": asdict(workload), "containers": containers})
                if len(text) >= MOST_BYTES:
                    raise StoreError(f"{self.path(workload)}: its samples would have more than {MOST_BYTES >> 20} MiB: they are not kept")
                write_whole(self.path(workload), text + "\n", FILE_MODE)
                return new
        except ClockError as error:
            raise StoreError(f"{self.path(workload)}: {error}; correct it, or move the file away if its samples are wrong") from None
        except OSError as error:
            raise FolderError(
                f"{self.folder}: samples could not be kept ({error.strerror or error}); free space there, or set another directory in the "
                "environment: XDG_STATE_HOME=DIRECTORY"
            ) from error

    def forget(self, now: float) -> None:
        """Remove the files of workloads that no run has seen for KEEP_DAYS, and of more than MOST_WORKLOADS the oldest. Raises
        StoreError."""
        try:
            if not self.folder.is_dir():
                return
            with self._locked():
                for path in self.folder.glob("*.json"):
                    if path.stat().st_mtime < now - KEEP_DAYS * DAY:
                        path.unlink()
                keep_newest(self.folder, "*.json", MOST_WORKLOADS)
        except OSError as error:
            raise StoreError(f"{self.folder}: old samples could not be removed ({error.strerror or error})") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            deadline = Deadline(LOCK_SECONDS)
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                        raise
                    if deadline.over:
                        raise FolderError(f"{self.folder}/lock: another run has held it for {LOCK_SECONDS:g} s; try again") from None
                deadline.pause(_PAUSE)
            yield
        finally:
            os.close(descriptor)


def _plain(history: SampleHistory) -> dict[str, Any]:
    return {"spans": [_plain_span(span) for span in history.spans], "kills": [asdict(kill) for kill in history.kills]}


def _plain_span(span: Span) -> dict[str, Any]:
    return {**asdict(span), "points": [[round(point.at, 1), point.most, point.least] for point in span.points]}


def _history(found: Mapping[str, Any]) -> SampleHistory:
    """Raises KeyError, TypeError, ValueError, AttributeError, OverflowError."""
    return SampleHistory(tuple(_span(one) for one in found["spans"]), tuple(_kill(one) for one in found["kills"]))


def _span(found: Mapping[str, Any]) -> Span:
    last: dict[str, Any] = {key: _number_or_none(value) if key != "source" else str(value) for key, value in found["last"].items()}
    return Span(
        id=str(found["id"]),
        pod=str(found["pod"]),
        node=str(found["node"]),
        image=str(found["image"]),
        first=_finite(found["first"]),
        last=Read(**last),
        reads=int(found["reads"]),
        highest=_number_or_none(found["highest"]),
        fine=_days(found["fine"]),
        slow=_days(found["slow"]),
        points=tuple(Point(_finite(at), int(most), int(least)) for at, most, least in found["points"]),
        passed=_pair(found.get("passed", (0, 0))),
        stopped=_stopped(found.get("stopped")),
    )


def _pair(found: Sequence[Any]) -> tuple[int, int]:
    one, other = found
    return int(one), int(other)


def _stopped(found: Sequence[Any] | None) -> tuple[int, float] | None:
    if found is None:
        return None
    limit, share = found
    return int(limit), _finite(share)


def _kill(found: Mapping[str, Any]) -> Kill:
    limit = _number_or_none(found["limit"])
    return Kill(str(found["id"]), _finite(found["at"]), None if limit is None else int(limit), _number_or_none(found["lived"]))


def _days(found: Mapping[str, Any]) -> dict[int, dict[int, int]]:
    return {int(day): {int(index): int(count) for index, count in counts.items()} for day, counts in found.items()}


def _number_or_none(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r} is not a number")
    return None if value is None else _finite(value)


def _finite(value: Any) -> Any:
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number that daytwo writes")
    return value
