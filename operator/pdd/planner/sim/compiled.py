"""The one place where functions are handed to numba, and where their machine code is kept.

It is kept in a folder named after the sources: numba looks only at the file of the function itself, while the machine
code also holds the functions that it calls, so a change in one of those would go unseen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", int, bool)
PACKAGE = Path(__file__).parents[2]
SOURCES = ("planner/sim", "policy", "planner/kvlaw.py", "planner/timing.py", "planner/wan.py")
"""What compiled functions are written in, below the package."""
KEPT_FOLDERS = 4
"""Versions whose machine code stays; each takes a few MB."""
STALE_S = 3600.0
"""A folder used that recently belongs to a version that may be running."""


def find_cache_folder() -> Path | None:
    """The folder for this version's machine code, made if it is missing; None where nothing can be written.

    Below $NUMBA_CACHE_DIR, else $XDG_CACHE_HOME or ~/.cache: beside the sources, numba's default, an installed package
    may not be writable.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    above = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(cache) / "pdd" / "numba")
    found = hashlib.blake2b(f"{numba.__version__} {sys.version}".encode(), digest_size=8)
    for name in SOURCES:
        path = PACKAGE / name
        for source in sorted(path.glob("*.py")) if path.is_dir() else (path,):
            found.update(f"{source.name} ".encode() + source.read_bytes())
    folder = above / f"pdd-{found.hexdigest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            return None
        os.utime(folder)
        _drop_old(above)
    except OSError:
        return None
    return folder


def _drop_old(above: Path) -> None:
    """Keeps the newest folders. Losing one that is in use costs a compilation, never an answer."""
    aged = sorted(((path.stat().st_mtime, path) for path in above.glob("pdd-*")), reverse=True)
    for at, path in aged[KEPT_FOLDERS:]:
        if time.time() - at > STALE_S:
            shutil.rmtree(path, ignore_errors=True)


FOLDER = None if getattr(numba.config, "DISABLE_JIT", False) else find_cache_folder()
if FOLDER is not None:
    setattr(numba.config, "CACHE_DIR", str(FOLDER))  # noqa: B010  # its stub has no such name


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, compiled at its first call and kept on disk. It must not allocate.

    _nrt=False leaves out numba's reference counting: the loop only changes arrays that its caller holds, and counting
    them up and down in each small function cost 25 times the work itself.
    """
    options: dict[str, Any] = {"cache": FOLDER is not None, "_nrt": False}
    made: Any = numba.njit(**options)(function)
    if FOLDER is not None:
        made._cache.save_overload = _one_at_a_time(made._cache.save_overload, FOLDER / "lock")
    return cast(Callable[P, R], made)


def _one_at_a_time(save: Callable[..., None], lock: Path) -> Callable[..., None]:
    """numba reads, changes and writes its index without a lock: two processes that compile two signatures of one
    function at once could file both under one name, and the wrong machine code would be run later."""

    def locked(*args: Any) -> None:
        with _lock(lock):
            save(*args)

    return locked


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held for milliseconds at a time. Where it cannot be had, another process removed the folder: nothing to guard."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
            return
    yield


def constant(value: N) -> N:
    """A constant as an argument of compiled functions: numba would compile the callee anew for each literal."""
    return cast(N, np.bool_(value) if isinstance(value, bool) else np.int64(value))
