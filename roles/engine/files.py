"""Files on the operator's own machine: reports and pages."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file completely or not at all, also if the machine loses power: no reader ever sees a part of it. Other users may write into
    the folder (/tmp), so the temporary file has an unpredictable name, and is never an existing file or link. Raises OSError."""
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
    # A folder that is writable but not readable cannot be synced; the file still exists.
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
