"""Gets the kind node image and the tools kind, kubectl and helm, as cheaply as this machine allows.

An image that is there already is used; else kindest/node is pulled if a registry answers; else everything is built from
Go modules and Debian packages. Each stage is kept in the cache under the hash of what it is made from:

    programs/<hash>/bin,files    Kubernetes, etcd, coredns, kind, helm (Go; minutes)
    roots/<hash>-base.tar, -node.tar    Debian roots (debootstrap; a minute)
    node-<hash>.tar    the finished image, for an engine that lost it

usage: python -m e2e.node_image.build     prints the image's name
PDD_PULL=1 insists on a pull, PDD_PULL=0 never tries one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e import engine, paths
from e2e.shell import CommandFailed, run, say

HERE = Path(__file__).resolve().parent
PULLED = "kindest/node:v1.34.11"
TOOLS = ("kind", "kubectl", "helm")


def ensure() -> str:
    """Returns the name of a node image that the engine has. The engine must answer (e2e.engine.ensure)."""
    with _lock("node-image"):
        key = paths.content_hash(*_sources())
        built = f"pdd/kind-node:{key}"
        saved = paths.cache() / f"node-{key}.tar"
        if _in_engine(built):
            if not _has_tools():
                _programs("tools")
            return built
        if os.environ.get("PDD_PULL") != "0" and _in_engine(PULLED):
            _programs("tools")
            return PULLED
        if saved.exists():
            say(f"loading {built} from the cache")
            run("docker", "load", "-i", saved, timeout_s=300)
            _programs("tools")
            return built
        if _pull():
            _programs("tools")
            return PULLED
        _build(built, saved)
        return built


def is_ready() -> bool:
    """Whether `ensure` has nothing to build that takes long. The engine must answer."""
    key = paths.content_hash(*_sources())
    return _has_tools() and (_in_engine(f"pdd/kind-node:{key}") or _in_engine(PULLED))


def _sources() -> list[Path]:
    return [HERE / name for name in ("versions.env", "programs.sh", "rootfs.sh", "assemble.sh")]


def _in_engine(image: str) -> bool:
    return bool(run("docker", "images", "-q", image).strip())


def _has_tools() -> bool:
    return all((paths.tools() / tool).exists() for tool in TOOLS)


def _pull() -> bool:
    wish = os.environ.get("PDD_PULL", "auto")
    if wish == "0":
        return False
    try:
        # Asks for the manifest only: where no registry can be reached this fails in seconds.
        run("docker", "manifest", "inspect", PULLED, timeout_s=60 if wish == "1" else 8)
        say(f"pulling {PULLED}")
        run("docker", "pull", "-q", PULLED, timeout_s=900)
    except CommandFailed as error:
        if wish == "1":
            raise
        say(f"no image registry here ({str(error)[-120:]}): building the node image from source")
        return False
    return True


def _programs(what: str = "all") -> Path:
    """Builds the Go programs, or finds them in the cache; links the tools into the cache's bin.

    `what` "tools" is content with kind, kubectl and helm.
    """
    key = paths.content_hash(HERE / "versions.env", HERE / "programs.sh")
    target = paths.cache() / "programs" / key
    if what == "tools" and not target.exists():
        target = paths.cache() / "programs" / f"{key}-tools"
    if not target.exists():
        part, work = target.with_name(f"{target.name}.part"), paths.cache() / "build" / "go"
        run(HERE / "programs.sh", what, part, work, timeout_s=3600, show=True)
        part.rename(target)
        if os.environ.get("PDD_KEEP_GO_CACHE") != "1":
            shutil.rmtree(work, ignore_errors=True)
        for old in target.parent.iterdir():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
    paths.tools().mkdir(exist_ok=True)
    for tool in TOOLS:
        link = paths.tools() / tool
        link.unlink(missing_ok=True)
        link.symlink_to(target / "bin" / tool)
    return target


def base_root() -> Path:
    """The Debian root with Python, iptables and nftables, as a tar file: parent of the project's images too."""
    return _root("base")


def _root(kind: str) -> Path:
    key = paths.content_hash(HERE / "rootfs.sh", salt=_debian())
    target = paths.cache() / "roots" / f"{key}-{kind}.tar"
    target.parent.mkdir(exist_ok=True)
    with _lock(kind):
        if not target.exists():
            say(f"making the Debian root '{kind}'")
            run(HERE / "rootfs.sh", kind, target, timeout_s=900)
    return target


def _debian() -> str:
    lines = (HERE / "versions.env").read_text().splitlines()
    return next(line for line in lines if line.startswith("DEBIAN="))


def _build(tag: str, saved: Path) -> None:
    # The compiler fills the cores, debootstrap waits for disk and network: side by side they cost the longer one.
    with ThreadPoolExecutor(3) as pool:
        programs, base, node = pool.submit(_programs), pool.submit(_root, "base"), pool.submit(_root, "node")
        inputs = programs.result(), base.result(), node.result()
    run(HERE / "assemble.sh", *inputs, tag, timeout_s=900, show=True)
    part = saved.with_suffix(".part")
    for old in paths.cache().glob("node-*.tar"):
        old.unlink()
    for image in run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", tag.split(":")[0]).split():
        if image != tag:
            with suppress(CommandFailed):  # a cluster made from it may still run
                run("docker", "rmi", image)
    run("docker", "save", "-o", part, tag, timeout_s=300)
    part.rename(saved)


@contextmanager
def _lock(what: str) -> Iterator[None]:
    """One build of a thing at a time on one cache; the second waits and then finds it made."""
    with (paths.cache() / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    engine.ensure()
    print(ensure())
