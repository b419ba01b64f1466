"""Runs commands of the host: always with a timeout, and with the command's own last words in the error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")


class CommandFailed(RuntimeError):
    """A command ended with an error, or ran out of time."""


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} e2e: {message}", file=sys.stderr, flush=True)


def run(
    *command: str | Path,
    timeout_s: float = 60,
    stdin: bytes | Path | None = None,
    env: Mapping[str, str] | None = None,
    show: bool = False,
) -> str:
    """Runs a command and returns its standard output. `stdin` is bytes or a file; `show` lets stderr through."""
    words = [str(word) for word in command]
    environment = {**os.environ, **env} if env else None
    try:
        if isinstance(stdin, Path):
            with stdin.open("rb") as source:
                done = _run(words, timeout_s, None, source, environment, show)
        else:
            done = _run(words, timeout_s, stdin or b"", None, environment, show)
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{_brief(words)}: no end within {timeout_s:g} s") from error
    except FileNotFoundError as error:
        raise CommandFailed(f"{words[0]}: not found; run hack/machine.sh as root") from error
    if done.returncode:
        said = ((done.stderr or b"") + done.stdout).decode(errors="replace").strip()
        raise CommandFailed(f"{_brief(words)}: exit status {done.returncode}: {said[-2000:]}")
    return done.stdout.decode(errors="replace")


def _run(
    words: Sequence[str],
    timeout_s: float,
    data: bytes | None,
    source: IO[bytes] | None,
    env: Mapping[str, str] | None,
    show: bool,
) -> subprocess.CompletedProcess[bytes]:
    stderr = None if show else subprocess.PIPE
    out = subprocess.PIPE
    if source is not None:
        return subprocess.run(words, stdin=source, stdout=out, stderr=stderr, timeout=timeout_s, env=env, check=False)
    return subprocess.run(words, input=data, stdout=out, stderr=stderr, timeout=timeout_s, env=env, check=False)


def _brief(words: Sequence[str]) -> str:
    line = " ".join(words)
    return line if len(line) <= 200 else line[:197] + "..."


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, every_s: float = 0.3) -> T:
    """Calls `probe` until it gives something true. A CommandFailed of the probe counts as "not yet"."""
    deadline = time.monotonic() + timeout_s
    last = ""
    while True:
        try:
            if found := probe():
                return found
        except CommandFailed as error:
            last = f"; last: {error}"
        if time.monotonic() > deadline:
            raise CommandFailed(f"{what}: not within {timeout_s:g} s{last}")
        time.sleep(every_s)
