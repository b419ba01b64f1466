"""Files that a command writes: refused before the work begins, and never left half-written over a good one."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pdd.common.errors import InvalidInput


def check_output(option: str, path: Path | None, *, source: str = "") -> None:
    """Raises InvalidInput if `path` cannot be written, or is the file `source` that the command reads."""
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InvalidInput(option, str(path), "its folder is not there: make it, or name another")
    if path.is_dir():
        raise InvalidInput(option, str(path), "is a folder: name a file in it")
    if source and path.exists() and Path(source).exists() and path.samefile(source):
        raise InvalidInput(option, str(path), "is the file that is read: name another")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput(option, str(path), "must not be written: name another, or change its rights")


def check_output_folder(option: str, path: Path | None) -> None:
    """The same for a folder, which is made with the folders above it if it is missing. Raises InvalidInput."""
    if path is None:
        return
    nearest = path.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise InvalidInput(option, str(path), f"{nearest} is no folder: name another")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidInput(option, str(path), f"{nearest} must not be written: name another, or change its rights")


def write_output(option: str, path: Path, content: str | bytes) -> None:
    """All of it or nothing. Pipes and devices are written as they are. Raises InvalidInput."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)  # a link stays one
    except OSError as error:
        raise InvalidInput(option, str(path), f"cannot be written: {error.strerror or error}") from error


def _replace(path: Path, data: bytes) -> None:
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(part, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
