"""Files on the operator's own machine: reports and pages."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """A whole file or none, also where the machine loses power: whoever watches it never sees half of it. Others may write into the
    folder (/tmp): what it is written to first has a name that nobody could foresee, and is never a file or a link that was there
    already. Raises OSError."""
    unfinished = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    # A folder that may be written to and not be read cannot be synced; the file is there all the same.
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
