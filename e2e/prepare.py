"""Makes everything that takes long before the clusters are needed: the node image, the tools, the project's images.

usage: python -m e2e.prepare [--clusters | --ready]     safe to run again: what is made already costs seconds
--clusters: also brings both clusters up and puts the images into them; `python -m e2e.clusters down` ends them.
--ready: makes nothing; exit status 1 if the node image and its tools, which take many minutes, are yet to be made.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

from e2e import clusters, engine, paths
from e2e.node_image import build as node_image
from e2e.shell import CommandFailed, say
from e2e.wan.client import WanError


def project_images() -> ModuleType:
    """images/build.py: a script beside this package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("pdd_images_build", paths.REPOSITORY / "images" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare() -> tuple[str, list[str]]:
    """Returns the node image's name and the project images' names. Raises NoEngine, CommandFailed."""
    engine.ensure()
    with ThreadPoolExecutor(2) as pool:
        node = pool.submit(node_image.ensure)
        images = pool.submit(project_images().build)
        return node.result(), images.result()


def main() -> int:
    started = time.monotonic()
    try:
        if "--ready" in sys.argv[1:]:
            engine.ensure()
            return 0 if node_image.is_ready() else 1
        node, images = prepare()
        if "--clusters" in sys.argv[1:]:
            bring_up(images)
    except (CommandFailed, WanError, engine.NoEngine) as error:
        print(f"prepare: {error}", file=sys.stderr)
        return 1
    say(f"prepared {node}, {', '.join(images)} in {time.monotonic() - started:.0f} s")
    return 0


def bring_up(images: list[str]) -> None:
    """Both clusters with the project's images. Raises NoEngine, CommandFailed, WanError."""
    clusters.up().load(*images)


if __name__ == "__main__":
    sys.exit(main())
