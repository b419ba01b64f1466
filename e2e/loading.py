"""Puts images of the container engine into the nodes' containerd, sending only the layers that a node lacks.

`docker save` is read once for all nodes. A node gets an OCI archive without the layers whose blobs it has: containerd
takes an archive with such gaps, since it looks blobs up by digest. After a change of code that is a few MB an image.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

from e2e import paths
from e2e.kind import ClusterRef
from e2e.shell import CommandFailed, run, say

TIMEOUT_S = 300
CTR = ("ctr", "-n", "k8s.io")
LABEL = "pdd.dev/engine-id"  # the engine's id of an image; containerd itself keeps other digests
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class SavedImage:
    """One image of a `docker save` archive: its name in containerd, its configuration, its layers (digest, member)."""

    name: str
    config: bytes
    layers: tuple[tuple[str, tarfile.TarInfo], ...]


def load(clusters: Sequence[ClusterRef], images: Sequence[str]) -> None:
    """Loads the images into each node that lacks them or has another version. Raises CommandFailed."""
    identities = {image: run("docker", "inspect", "-f", "{{.Id}}", image).strip() for image in images}
    missing = {cluster: _missing(cluster, identities) for cluster in clusters}
    wanted = sorted({image for needed in missing.values() for image in needed})
    if not wanted:
        return
    started = time.monotonic()
    with tempfile.NamedTemporaryFile(dir=paths.cache(), suffix=".tar") as file:
        run("docker", "save", "-o", file.name, *wanted, timeout_s=TIMEOUT_S)
        with ThreadPoolExecutor(len(clusters)) as pool:
            list(pool.map(lambda cluster: _send(cluster, missing[cluster], identities, file.name), clusters))
    say(f"loaded {', '.join(wanted)} in {time.monotonic() - started:.1f} s")


def _missing(cluster: ClusterRef, identities: dict[str, str]) -> list[str]:
    listing = cluster.on_node(*CTR, "images", "list")
    return [image for image, identity in identities.items() if not has(listing, image, identity)]


def has(listing: str, image: str, identity: str) -> bool:
    """Does `ctr images list` show this very build of the image? A re-import takes the label away again."""
    rows = [line.split() for line in listing.splitlines()]
    return any(row and row[0] == full_name(image) and f"{LABEL}={identity}" in row[-1].split(",") for row in rows)


def full_name(image: str) -> str:
    """containerd's name of an engine's image: pdd/router:dev is docker.io/pdd/router:dev."""
    first = image.split("/", 1)[0]
    if "/" not in image:
        return f"docker.io/library/{image}"
    return image if "." in first or ":" in first or first == "localhost" else f"docker.io/{image}"


def _send(cluster: ClusterRef, images: Sequence[str], identities: dict[str, str], saved: str) -> None:
    if not images:
        return
    present = frozenset(cluster.on_node(*CTR, "content", "list", "-q").split())
    try:
        _import(cluster, images, saved, present)
    except CommandFailed as error:
        say(f"{cluster.name}: {error}; sending all layers")
        _import(cluster, images, saved, frozenset())
    for image in images:
        cluster.on_node(*CTR, "images", "label", full_name(image), f"{LABEL}={identities[image]}")


def _import(cluster: ClusterRef, images: Sequence[str], saved: str, present: frozenset[str]) -> None:
    words = ["docker", "exec", "-i", cluster.node, *CTR, "images", "import", "--snapshotter", "overlayfs", "-"]
    with (
        tarfile.open(saved) as archive,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdin and process.stderr
        try:
            chosen = [image for image in read_saved(archive) if image.name in {full_name(name) for name in images}]
            write_oci(archive, chosen, present, process.stdin)
            process.stdin.close()
            process.wait(TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
        said = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise CommandFailed(f"{cluster.name}: loading {' '.join(images)}: {said[-500:]}")


def read_saved(archive: tarfile.TarFile) -> list[SavedImage]:
    """The images of a `docker save` archive."""
    out = []
    for item in json.loads(_read(archive, "manifest.json")):
        config = _read(archive, item["Config"])
        digests = json.loads(config)["rootfs"]["diff_ids"]
        layers = tuple(zip(digests, (_member(archive, name) for name in item["Layers"]), strict=True))
        out += [SavedImage(full_name(tag), config, layers) for tag in item["RepoTags"] or []]
    return out


def write_oci(
    archive: tarfile.TarFile, images: Sequence[SavedImage], present: frozenset[str], target: IO[bytes]
) -> None:
    """Writes an OCI archive of the images to a stream, without the layers whose digests are in `present`."""
    written = set(present)
    index: list[dict[str, Any]] = []
    with tarfile.open(fileobj=target, mode="w|") as out:
        _add(out, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for image in images:
            for digest, member in image.layers:
                if digest not in written:
                    info = tarfile.TarInfo(_blob(digest))
                    info.size = member.size
                    out.addfile(info, archive.extractfile(member))
                    written.add(digest)
            layers = [{"mediaType": LAYER, "digest": digest, "size": member.size} for digest, member in image.layers]
            config = _add_blob(out, CONFIG, image.config)
            manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
            described = _add_blob(out, MANIFEST, json.dumps(manifest).encode())
            index.append({**described, "annotations": {"io.containerd.image.name": image.name}})
        _add(out, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())


def _member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """A layer that occurs twice is a link to its first occurrence."""
    info = archive.getmember(name)
    if info.issym():
        return archive.getmember(info.linkname.removeprefix("../"))
    return archive.getmember(info.linkname) if info.islnk() else info


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise CommandFailed(f"docker save gave no {name}")
    return stream.read()


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add_blob(out: tarfile.TarFile, media_type: str, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _add(out, _blob(digest), data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    out.addfile(info, io.BytesIO(data))
