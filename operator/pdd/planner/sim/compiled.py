"""The one place where functions are handed to numba."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

if not os.environ.get("NUMBA_CACHE_DIR"):
    # Beside the sources, numba's default, an installed package may not be writable.
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    setattr(numba.config, "CACHE_DIR", str(Path(base) / "pdd" / "numba"))  # noqa: B010  # its stub has no such name


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, compiled at its first call and kept on disk. It must not allocate.

    _nrt=False leaves out numba's reference counting: the loop only changes arrays that its caller holds, and counting
    them up and down in each small function cost 25 times the work itself.
    """
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    made: Callable[P, R] = numba.njit(**options)(function)
    return made
