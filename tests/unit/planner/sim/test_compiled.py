"""Machine code on disk: found again only for the same sources, and never mixed up by processes that compile at once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import caching

from pdd.planner.sim import compiled, loop, precompile

RUN = (
    "import sys\n"
    "from tests.unit.planner.sim.fleets import fleet, load\n"
    "from pdd.planner.sim import precompile, simulate\n"
    "if 'ahead' in sys.argv: assert precompile.start()\n"
    "simulate(fleet(), load(10, rate=1.0, outputs=5))\n"
    "for function in precompile.find_functions():\n"
    "    print(function[0].py_func.__name__, sum(function[0].stats.cache_misses.values()))\n"
)


def reachable(function: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """Every compiled function that `function` calls, itself too."""
    if hasattr(function, "py_func") and id(function) not in seen:
        seen[id(function)] = function
        for name in function.py_func.__code__.co_names:
            reachable(function.py_func.__globals__.get(name), seen)
    return seen


def in_own_process(cache: Path, code: str, *arguments: str) -> str:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    env.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_compiled_source_names_the_folder() -> None:
    """A source outside of it could change while the machine code that holds a copy of it is found again."""
    functions = reachable(loop.run_until, {})
    assert len(functions) > 40
    named = [compiled.PACKAGE / name for name in compiled.SOURCES]
    for function in functions.values():
        source = Path(function.py_func.__code__.co_filename)
        assert source in named or source.parent in named, f"{source}: add it to SOURCES"


def test_a_changed_source_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    for name in compiled.SOURCES:
        path = compiled.PACKAGE / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / name)
        else:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / name)
    before = compiled.find_cache_folder()
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    assert compiled.find_cache_folder() == before, "equal sources elsewhere"
    for name in ("policy/pipeline.py", "planner/timing.py", "planner/sim/loop.py"):
        source = tmp_path / name
        source.write_text(source.read_text() + "\n")
        after = compiled.find_cache_folder()
        assert after != before, name
        before = after


def test_old_folders_go_but_not_those_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for age in range(8):
        (tmp_path / f"pdd-{age}").mkdir()
        os.utime(tmp_path / f"pdd-{age}", (0, 0) if age % 2 else None)
    (tmp_path / "another program's").mkdir()
    folder = compiled.find_cache_folder()
    assert folder is not None
    left = {path.name for path in tmp_path.iterdir()}
    assert {"pdd-0", "pdd-2", "pdd-4", "pdd-6", "another program's", folder.name} <= left
    assert not {"pdd-1", "pdd-3", "pdd-5", "pdd-7"} & left


def test_without_a_writable_folder_it_runs_all_the_same(tmp_path: Path) -> None:
    """Compiled in the process itself, kept nowhere."""
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    code = (
        "from pdd.planner.sim import line, precompile\nprint(line.start_of(1e6, 1e8, 0.1, 4) > 0, precompile.start())"
    )
    assert in_own_process(in_the_way, code) == "True False\n"


class SlowFile(caching.IndexDataCacheFile):
    """A fake slow disk: the index is read long before it is written."""

    def _load_index(self) -> Any:
        found = super()._load_index()
        time.sleep(0.2)
        return found


def keep(folder: str, kind: str) -> None:
    """Compiles one signature of one function and keeps it."""
    make(Path(folder)).compile((getattr(numba, kind),))


def make(folder: Path) -> Any:
    compiled.FOLDER = folder
    setattr(numba.config, "CACHE_DIR", str(folder))  # noqa: B010  # as the module does
    made: Any = compiled.compiled(double)
    made._cache._cache_file.__class__ = SlowFile
    return made


def double(x: Any) -> Any:
    return x + x


def test_signatures_kept_by_processes_at_once_are_all_found(tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    kinds = ("int64", "float64", "int32", "float32")
    processes = [spawned.Process(target=keep, args=(str(tmp_path), kind)) for kind in kinds]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    names = sorted(path.name for path in tmp_path.rglob("*.nbc"))
    assert len(names) == len(kinds), f"two signatures share a file: {names}"


def test_workers_compile_what_a_run_needs(tmp_path: Path) -> None:
    """The run after them finds each of the functions in the cache, and its end says so to the next process."""
    shown = in_own_process(tmp_path, RUN, "ahead")
    rows = dict(line.split() for line in shown.splitlines())
    assert {"arrive", "prefilled", "landed", "switch", "handle", "deliver", "decoded"} <= rows.keys()
    assert set(rows.values()) == {"0"}, f"compiled again: {rows}"
    assert list(tmp_path.glob("pdd-*/complete"))


START = "from pdd.planner.sim import precompile\nprecompile.start()\nprint(*(w.pid for w in precompile._workers))\n"


def test_workers_are_ended_with_the_process(tmp_path: Path) -> None:
    pids = in_own_process(tmp_path, START).split()
    assert len(pids) == precompile.WORKERS
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_workers_of_a_killed_process_end_soon(tmp_path: Path) -> None:
    code = START + "import os, sys\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    pids = killed.stdout.split()
    assert len(pids) == precompile.WORKERS
    deadline = time.monotonic() + 6  # alone, they would compile for more than 10 s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.1)
