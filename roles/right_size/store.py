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
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from roles.engine.bounds import read_json
from roles.engine.files import FILE_MODE, create_private, keep_newest, state_folder, write_whole
from roles.engine.timeouts import Deadline
from roles.right_size.samples import DAY, KEEP_DAYS, ClockError, SampleHistory
from roles.right_size.workloads import SizedWorkload

#: The format of the files. Files of a newer one are neither read nor written.
FORMAT = 1
LOCK_SECONDS = 30.0
#: A larger file is not one that daytwo wrote.
MOST_BYTES = 64 * 2**20
#: Of one cluster; whoever may create workloads may create any number.
MOST_WORKLOADS = 50_000
_PAUSE = 0.2
_CONTAINERS = TypeAdapter(dict[str, SampleHistory])


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
            return _CONTAINERS.validate_python(found["containers"])
        except (KeyError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {' '.join(str(error).splitlines()[:3])}"
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
                containers = {name: asdict(one) for name, one in new.items()}
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
