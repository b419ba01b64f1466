"""Compiles the simulator ahead, in processes of its own: the first run on a machine waits half as long.

    python -m pdd.planner.sim.precompile WORKER PARENT     (0 to WORKERS - 1, and the process that waits for it)

The compiler works under Python's lock, so only processes make use of a second core. They share their work through the
cache on disk; what none of them did, or what failed in them, the run itself compiles as ever.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_type_hints

from pdd.planner.sim.compiled import FOLDER

WORKERS = 2
NOTICE = "the simulator is compiled beside this, once on each machine: about 20 s"
LONGEST_S = 240.0
"""A worker that takes longer is ended: the run then compiles by itself."""
_workers: list[subprocess.Popen[bytes]] = []


def is_compiled() -> bool:
    """Whether this version's machine code is complete on this machine, as far as its last run left word."""
    return FOLDER is None or (FOLDER / "complete").exists()


def start() -> bool:
    """Starts the workers, unless nothing is to be compiled. Returns whether they are at work."""
    if not is_compiled() and not _workers:
        atexit.register(_end_all)
        for worker in range(WORKERS):
            with suppress(OSError):
                quiet = subprocess.DEVNULL
                command = [sys.executable, "-m", __name__, str(worker), str(os.getpid())]
                _workers.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
    return bool(_workers)


def finish() -> None:
    """Waits for the workers, if there are any. Call it before the first run."""
    ends = time.monotonic() + LONGEST_S
    try:
        for worker in _workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, ends - time.monotonic()))
    finally:  # interrupted or too slow: none is left behind
        _end_all()


def _end_all() -> None:
    while _workers:
        worker = _workers.pop()
        if worker.poll() is None:
            worker.kill()
            worker.wait()


def mark_complete() -> None:
    """A run has ended: all that it needed is on disk."""
    if FOLDER is not None and not is_compiled():
        with suppress(OSError):
            (FOLDER / "complete").touch()


def find_functions() -> list[tuple[Any, tuple[Any, ...]]]:
    """(function, numba types of its arguments) of those compiled functions of the event loop whose arguments are all
    known from their annotations, callees before callers. The loop itself is left out: it needs all others."""
    import numba

    from pdd.planner.sim import loop
    from pdd.planner.sim.world import Settings, World

    settings, world = find_types()
    known = {int: numba.int64, float: numba.float64, bool: numba.boolean, Settings: settings, World: world}
    seen: set[int] = set()
    ordered: list[tuple[Any, tuple[Any, ...]]] = []

    def visit(function: Any) -> None:
        if id(function) in seen or not hasattr(function, "py_func"):
            return
        seen.add(id(function))
        plain = function.py_func
        for name in plain.__code__.co_names:
            visit(plain.__globals__.get(name))
        hints = get_type_hints(plain)
        hints.pop("return", None)
        if Settings in hints.values() and set(hints.values()) <= known.keys():
            ordered.append((function, tuple(known[hint] for hint in hints.values())))

    root: Any = loop.run_until
    for name in root.py_func.__code__.co_names:
        visit(vars(loop).get(name))
    return ordered


def find_types() -> tuple[Any, Any]:
    """numba's types of a run's packed settings and of its world; the same for every run."""
    import numba
    import numpy as np

    from pdd.planner.load import Load
    from pdd.planner.sim.world import Settings, make_world, pack

    one, nothing = np.ones(1), np.zeros(1, np.int64)
    load = Load(one, nothing + 1, nothing + 1, nothing, nothing - 1, nothing - 1, one)
    settings = Settings(*(kind(1) for kind in get_type_hints(Settings).values()))
    typeof: Callable[[object], Any] = numba.typeof
    return typeof(pack(settings)), typeof(make_world(settings, load, 1))


def _end_with(parent: int) -> None:
    """Ends this worker when its parent was killed: nobody waits for it. Each file of the cache is written whole."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> int:
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    for function, types in find_functions()[int(sys.argv[1]) :: WORKERS]:
        function.compile(types)
    return 0


if __name__ == "__main__":
    sys.exit(main())
