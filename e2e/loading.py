"""Puts images of the container engine into a node's containerd."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence

from e2e.kind import ClusterRef
from e2e.shell import CommandFailed, run, say

TIMEOUT_S = 300


def load(cluster: ClusterRef, images: Sequence[str]) -> list[str]:
    """Loads the images that the node lacks or has in another version; returns their names. Raises CommandFailed."""
    wanted = {image: run("docker", "inspect", "-f", "{{.Id}}", image).strip() for image in images}
    present = _present(cluster)
    missing = [image for image, identity in wanted.items() if present.get(_full(image)) != identity]
    if missing:
        started = time.monotonic()
        _stream(cluster, missing)
        say(f"{cluster.name}: loaded {', '.join(missing)} in {time.monotonic() - started:.1f} s")
    return missing


def _present(cluster: ClusterRef) -> dict[str, str]:
    """Name -> id of the configuration, which is what the engine calls an image's id."""
    listed = json.loads(cluster.on_node("crictl", "images", "-o", "json"))
    return {tag: image["id"] for image in listed["images"] for tag in image.get("repoTags", [])}


def _full(image: str) -> str:
    """containerd's name of an engine's image: pdd/router:dev is docker.io/pdd/router:dev."""
    first = image.split("/", 1)[0]
    if "/" not in image:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


def _stream(cluster: ClusterRef, images: Sequence[str]) -> None:
    """Straight from the engine into the node: no file in between."""
    importer = ["docker", "exec", "-i", cluster.node, "ctr", "-n", "k8s.io", "images", "import", "--snapshotter"]
    with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as source:
        try:
            done = subprocess.run(
                [*importer, "overlayfs", "-"], stdin=source.stdout, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            source.kill()
            raise CommandFailed(f"{cluster.name}: loading {' '.join(images)}: no end within {TIMEOUT_S} s") from error
    if done.returncode or source.returncode:
        raise CommandFailed(
            f"{cluster.name}: loading {' '.join(images)}: {done.stderr.decode(errors='replace')[-500:]}"
        )
