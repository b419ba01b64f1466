"""What is sent to a node: an OCI archive without the layers that it has."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest
from e2e.loading import full_name, has, read_saved, write_oci


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def saved(layers: dict[str, bytes], link: bool = False) -> tarfile.TarFile:
    """An archive as `docker save` writes it: one image. `link` makes the last layer a symbolic link."""
    buffer = io.BytesIO()
    config = json.dumps({"rootfs": {"diff_ids": [digest(data) for data in layers.values()]}}).encode()
    names = [f"{name}/layer.tar" for name in layers]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["pdd/router:dev"], "Layers": names}]).encode()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in [("c.json", config), *zip(names, layers.values(), strict=True), ("manifest.json", manifest)]:
            info = tarfile.TarInfo(name)
            if link and name == names[-1]:
                info.type, info.linkname = tarfile.SYMTYPE, f"../{names[0]}"
                out.addfile(info)
                continue
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def written(archive: tarfile.TarFile, present: frozenset[str]) -> dict[str, bytes]:
    target = io.BytesIO()
    write_oci(archive, read_saved(archive), present, target)
    target.seek(0)
    with tarfile.open(fileobj=target) as result:
        return {member.name: (result.extractfile(member) or io.BytesIO()).read() for member in result}


def test_the_archive_names_the_image_and_holds_every_blob_under_its_digest() -> None:
    files = written(saved({"base": b"base layer", "app": b"app layer"}), frozenset())
    index = json.loads(files["index.json"])["manifests"]
    assert [item["annotations"]["io.containerd.image.name"] for item in index] == ["docker.io/pdd/router:dev"]
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/")}
    assert all(name == f"blobs/{digest(data).replace(':', '/')}" for name, data in blobs.items())
    manifest = json.loads(files[f"blobs/{index[0]['digest'].replace(':', '/')}"])
    assert [layer["digest"] for layer in manifest["layers"]] == [digest(b"base layer"), digest(b"app layer")]
    assert [layer["size"] for layer in manifest["layers"]] == [10, 9]
    assert len(blobs) == 4


def test_layers_that_the_node_has_are_named_but_not_sent() -> None:
    files = written(saved({"base": b"base layer", "app": b"app layer"}), frozenset({digest(b"base layer")}))
    assert b"base layer" not in files.values()
    assert b"app layer" in files.values()
    assert digest(b"base layer") in b"".join(files.values()).decode()


def test_a_layer_that_occurs_twice_is_sent_once() -> None:
    files = written(saved({"first": b"same", "second": b"same"}, link=True), frozenset())
    assert list(files.values()).count(b"same") == 1


@pytest.mark.parametrize(
    ("image", "name"),
    [("pdd/router:dev", "docker.io/pdd/router:dev"), ("busybox:1", "docker.io/library/busybox:1"),
     ("ghcr.io/a/b:1", "ghcr.io/a/b:1"), ("localhost/a:1", "localhost/a:1"), ("host:5000/a:1", "host:5000/a:1")],
)  # fmt: skip
def test_names_are_containerds(image: str, name: str) -> None:
    assert full_name(image) == name


def test_an_image_counts_as_present_only_with_the_engines_own_id() -> None:
    listing = (
        "REF TYPE DIGEST SIZE PLATFORMS LABELS\n"
        "docker.io/pdd/router:dev application/x sha256:ff 1.0 MiB linux/amd64 "
        "io.cri-containerd.image=managed,pdd.dev/engine-id=sha256:aa\n"
    )
    assert has(listing, "pdd/router:dev", "sha256:aa")
    assert not has(listing, "pdd/router:dev", "sha256:bb")
    assert not has(listing, "pdd/link:dev", "sha256:aa")
