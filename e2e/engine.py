"""The container engine: the one that answers, or a dockerd that hack/engine.sh starts."""

from __future__ import annotations

import os
import subprocess

from e2e import paths
from e2e.shell import CommandFailed, run, say


class NoEngine(RuntimeError):
    """No container engine can run on this machine. The message says why."""


def answers() -> str | None:
    """DOCKER_HOST of the engine that answers ("": the client's default), and uses it; None if none does."""
    host = _host()
    if host is not None:
        _use(host)
    return host


def is_own() -> bool:
    """Whether the engine that answers is one that hack/engine.sh started: whatever runs in it, this project made."""
    return (_host() or "").startswith(f"unix://{os.environ.get('PDD_RUN', '/run/pdd')}/")


def ensure() -> str:
    """Makes sure that an engine answers and points this process's children at it.

    Returns what was started: "ours" for a dockerd started by this call, "" when one was there already.
    """
    before = _host()
    if before is None:
        prepare_machine()
    script = paths.REPOSITORY / "hack" / "engine.sh"
    done = subprocess.run([script, "start"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise NoEngine(done.stderr.strip() or "hack/engine.sh start failed")
    _use(done.stdout.strip())
    return "" if before is not None else "ours"


def prepare_machine() -> None:
    """Installs what is missing (root on Debian), or says what is missing."""
    script = paths.REPOSITORY / "hack" / "machine.sh"
    done = subprocess.run([script], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise NoEngine(done.stderr.strip() or "hack/machine.sh failed")


def stop() -> None:
    """Ends the dockerd that `ensure` started; an engine that was there before goes on."""
    try:
        run(paths.REPOSITORY / "hack" / "engine.sh", "stop", timeout_s=60)
    except CommandFailed as error:
        say(f"the engine did not stop: {error}")


def _host() -> str | None:
    script = paths.REPOSITORY / "hack" / "engine.sh"
    done = subprocess.run([script, "host"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _use(host: str) -> None:
    if host:
        os.environ["DOCKER_HOST"] = host
