"""One child process: started in a session of its own, its output in a log file, ended by its group's id."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_TAIL_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. `name` is unique in a stack and names the log file; `env` is laid over our own environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A running process. Its whole group dies with it, and it dies with us (Linux: PR_SET_PDEATHSIG)."""

    def __init__(self, spec: ProcessSpec, log_path: Path) -> None:
        self.spec = spec
        self.log_path = log_path
        parent = os.getpid()

        def bind_to_parent() -> None:
            if _LIBC is not None:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:  # the parent died between fork and prctl
                    os._exit(1)

        with log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **spec.env},
                start_new_session=True,
                preexec_fn=bind_to_parent,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit status if ended (negative: signal), else None.

        Only looks: the ended child stays a zombie until `reap`, so that its process group's id cannot pass to a
        stranger before the group has been sent its last signal.
        """
        if self._popen.returncode is not None:
            return self._popen.returncode
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def signal_group(self, signum: int) -> None:
        """Send `signum` to the child's process group. Nothing after `reap`: the id may then belong to another."""
        if self._popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def last_lines(self, count: int = 8) -> list[str]:
        """The last `count` non-empty lines of the log (of its last 16 KiB)."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-count:]

    def describe_exit(self) -> str:
        """`exited with status 2` or `was ended by SIGKILL`."""
        code = self.returncode
        if code is None:
            return "runs"
        if code < 0:
            try:
                return f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                return f"was ended by signal {-code}"
        return f"exited with status {code}"

    def reap(self, timeout_s: float = 5.0) -> None:
        """Collect the exit status of a child that has been sent SIGKILL. Bounded; an unkillable one is left to init."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=timeout_s)
