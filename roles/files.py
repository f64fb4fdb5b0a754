"""Files on the operator's own machine: reports and pages."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """A whole file or none: whoever watches it never sees half of it, and a machine that goes down finds the old one or the new one.

    Nobody can have put something under the name of the unfinished file before: it is made new (O_EXCL), by a name that cannot be known.
    A file that is there keeps its mode. Raises OSError.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), _mode(path))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync(path.parent)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _mode(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
