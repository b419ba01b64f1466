"""Where things lie: the repository, the cache that survives between runs, and the state of what runs now."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def cache() -> Path:
    """The one cache folder; `make clean-cache` empties it."""
    given = os.environ.get("PDD_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdd"
    base.mkdir(parents=True, exist_ok=True)
    return base


def tools() -> Path:
    """Folder of kind, kubectl and helm."""
    return cache() / "bin"


def state() -> Path:
    """Folder of kubeconfigs, control sockets, logs and the record of what this project started."""
    folder = cache() / "state"
    folder.mkdir(exist_ok=True)
    return folder


def content_hash(*paths: Path, salt: str = "") -> str:
    """First 12 hex digits of SHA-256 over the files' names and bytes (folders: recursively) and `salt`."""
    digest = hashlib.sha256(salt.encode())
    for path in paths:
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            if "__pycache__" in file.parts:
                continue
            name = file.relative_to(path.parent).as_posix()
            digest.update(f"{name}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
