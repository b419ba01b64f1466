#!/usr/bin/env python3
"""Builds the project's images with the container engine that answers (or one of our own).

usage: python images/build.py [operator router link engine] [--tag dev] [--base IMAGE]

The base is a Debian root made by debootstrap, so that no image registry is needed; --base (or BASE_IMAGE) takes
another, such as python:3.11-slim. Dependencies are fetched on this machine as wheels, once for each set of
requirements, and make an early layer; the project's own code is the last, so that a change of it costs seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from e2e import engine, paths
from e2e.node_image import build as node_image
from e2e.shell import CommandFailed, run, say

HERE = Path(__file__).resolve().parent
PARTS = ("operator", "router", "link", "engine")
PYTHON = (3, 11)  # of the debootstrap base and of python:3.11-slim
LABEL = "pdd.dev/content"


def build(parts: Sequence[str] = PARTS, tag: str = "dev", base: str | None = None) -> list[str]:
    """Builds what changed and returns the images' names. Raises CommandFailed."""
    base = base or os.environ.get("BASE_IMAGE") or _base()
    names = ("operator/pdd", "pyproject.toml", "constraints.txt")
    sources = [*(paths.REPOSITORY / name for name in names), Path(__file__)]
    stale = {}
    for part in parts:
        content = paths.content_hash(*sources, HERE / part, salt=base)
        if _label(f"pdd/{part}:{tag}") != content:
            stale[part] = content
    if stale:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=paths.cache()) as folder:
            app = _app(Path(folder))
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda part: _image(part, tag, base, stale[part], app, Path(folder)), stale))
        # What the new images replaced; the stage with the dependencies has no label and stays for the next build.
        run("docker", "image", "prune", "-f", "--filter", f"label={LABEL}", timeout_s=120)
        say(f"built {', '.join(stale)} in {time.monotonic() - started:.1f} s")
    return [f"pdd/{part}:{tag}" for part in parts]


def _label(image: str) -> str:
    try:
        return run("docker", "inspect", "-f", f'{{{{index .Config.Labels "{LABEL}"}}}}', image).strip()
    except CommandFailed:
        return ""


def _base() -> str:
    """The Debian base with Python, imported once."""
    root = node_image.base_root()
    name = f"pdd/base:{root.name.split('-')[0]}"
    if not run("docker", "images", "-q", name).strip():
        run("docker", "import", root, name, timeout_s=120)
    return name


def _app(folder: Path) -> Path:
    """The installed package: sources, bytecode, metadata. The same bytes for the same sources: layers are re-used."""
    app = folder / "app"
    shutil.copytree(paths.REPOSITORY / "operator" / "pdd", app / "pdd", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = _metadata()
    shutil.copytree(metadata, app / metadata.name)
    if sys.version_info[:2] == PYTHON:
        # Bytecode that never looks at the sources' times: those differ from build to build.
        flags = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(app), "-p", "/opt/pdd/app"]
        run(sys.executable, "-m", "compileall", *flags, app, timeout_s=120)
    return app


def _metadata() -> Path:
    """The project's *.dist-info folder (version, entry points), made by its build backend once for each pyproject.toml.

    A whole wheel for each change of code would cost more than all the rest of the build.
    """
    kept = paths.cache() / "wheels" / f"metadata-{paths.content_hash(paths.REPOSITORY / 'pyproject.toml')}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=paths.cache()) as name:
            source = Path(name) / "source"
            (source / "operator" / "pdd").mkdir(parents=True)
            (source / "operator" / "pdd" / "__init__.py").touch()
            for text in ("README.md", "LICENSE"):
                (source / text).touch()
            shutil.copy2(paths.REPOSITORY / "pyproject.toml", source)
            run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", name, source, timeout_s=300)
            out = Path(name) / "metadata"
            with zipfile.ZipFile(next(Path(name).glob("*.whl"))) as wheel:
                wheel.extractall(out, [item for item in wheel.namelist() if ".dist-info/" in item])
            for record in out.glob("*.dist-info/RECORD"):
                record.unlink()  # lists the empty package's files
            kept.parent.mkdir(exist_ok=True)
            out.rename(kept)
    return next(kept.glob("*.dist-info"))


def _wheels(part: str) -> Path:
    """Folder with the wheels of a part's requirements; kept in the cache under the requirements' hash."""
    project = tomllib.loads((paths.REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = sorted([*project["dependencies"], *project["optional-dependencies"][part]])
    constraints = paths.REPOSITORY / "constraints.txt"
    key = paths.content_hash(constraints, salt=repr((wanted, PYTHON)))
    folder = paths.cache() / "wheels" / f"{part}-{key}"
    if not folder.exists():
        words = [sys.executable, "-m", "pip"]
        if sys.version_info[:2] == PYTHON:
            words += ["wheel"]
        else:  # another interpreter than the image's: its wheels can only be fetched, not built
            version = ".".join(map(str, PYTHON))
            words += ["download", "--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
            for libc in ("2_17", "2_28", "2_34"):
                words += ["--platform", f"manylinux_{libc}_{os.uname().machine}"]
        part_folder = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part_folder, ignore_errors=True)
        run(*words, "-q", "-w" if "wheel" in words else "-d", part_folder, "-c", constraints, *wanted, timeout_s=600)
        for old in folder.parent.glob(f"{part}-*"):
            if old != part_folder:
                shutil.rmtree(old, ignore_errors=True)
        part_folder.rename(folder)
    return folder


def _image(part: str, tag: str, base: str, content: str, app: Path, folder: Path) -> None:
    context = folder / part
    context.mkdir()
    shutil.copy2(HERE / part / "Dockerfile", context / "Dockerfile")
    shutil.copytree(_wheels(part), context / "wheels", copy_function=os.link)
    shutil.copytree(app, context / "app", copy_function=os.link)
    words = ["docker", "build", "-q", "--build-arg", f"BASE_IMAGE={base}", "--label", f"{LABEL}={content}"]
    # The classic builder needs nothing beside the engine; BuildKit is a plug-in that bare machines lack.
    run(*words, "-t", f"pdd/{part}:{tag}", context, timeout_s=600, env={"DOCKER_BUILDKIT": "0"})


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--base", default=None)
    args = parser.parse_args()
    if unknown := sorted(set(args.parts) - set(PARTS)):
        print(f"images: {', '.join(unknown)}: no such image; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        engine.ensure()
        print("\n".join(build(args.parts or PARTS, args.tag, args.base)))
    except (CommandFailed, engine.NoEngine, subprocess.SubprocessError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
