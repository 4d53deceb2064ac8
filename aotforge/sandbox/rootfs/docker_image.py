"""The rootfs as an image for Docker Engine and podman, with a reproducible ID.

Format: the archive of `docker save` (manifest.json, one config, one layer), written here because `docker import` puts the time into
the ID. Image specification v1.2 of Docker; the config's digest is the image's ID.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from aotforge.formats.archive import Member, entry, write_tar
from aotforge.sandbox.rootfs.cache_files import CachePaths, file_lock, staged_file, storage_errors
from aotforge.sandbox.rootfs.definitions import RootfsImage

_TIME = "1970-01-01T00:00:00Z"


def image_tag(image: RootfsImage) -> str:
    """Name of the image in an engine."""
    return f"aotforge/{image.name}:{image.digest[:16]}"


def image_id(image: RootfsImage) -> str:
    """`sha256:...`, as engines report it."""
    return f"sha256:{hashlib.sha256(_config(image)).hexdigest()}"


def docker_archive(image: RootfsImage, *, cache: Path) -> Path:
    """An archive for `docker load` and `podman load`, written once. Raises ContainerError."""
    paths = CachePaths(cache=cache)
    path = paths.archive(image_id(image).removeprefix("sha256:"))
    with storage_errors(path):
        if not path.is_file():
            with file_lock(paths.lock(f"{path.stem}.archive")):
                if not path.is_file():
                    with staged_file(path) as staged:
                        _write(image, staged)
    return path


def _write(image: RootfsImage, path: Path) -> None:
    config = _config(image)
    name, layer = f"{hashlib.sha256(config).hexdigest()}.json", f"{image.digest}/layer.tar"
    manifest = [{"Config": name, "RepoTags": [image_tag(image)], "Layers": [layer]}]
    layer_info = tarfile.TarInfo(layer)
    layer_info.size = image.tar.stat().st_size
    with path.open("wb") as file, image.tar.open("rb") as content:
        documents = {name: config, "manifest.json": json.dumps(manifest).encode()}
        entries = [entry(member, Member(content=data)) for member, data in documents.items()]
        write_tar(file, [*entries, (layer_info, content)], layout=tarfile.GNU_FORMAT)


def _config(image: RootfsImage) -> bytes:
    fields = {
        "architecture": "amd64",
        "os": "linux",
        "created": _TIME,
        "config": {"Env": [f"{name}={value}" for name, value in image.environment], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{image.digest}"]},
        "history": [{"created": _TIME, "created_by": f"aotforge {image.name}"}],
    }
    return json.dumps(fields, sort_keys=True).encode()
