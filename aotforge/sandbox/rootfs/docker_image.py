"""The same root as an image that Docker Engine and podman load, with an ID that does not depend on when or where it is made.

Format: the archive of `docker save` (manifest.json, one config, one layer), written by hand: `docker import` would put the time
into the ID. Image specification v1.2 of Docker; the config's digest is the image's ID.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from aotforge.sandbox.rootfs.rootfs import CachePaths, RootfsImage
from aotforge.sandbox.rootfs.rootfs_cache import cache_lock, staged_file, storage_errors

_TIME = "1970-01-01T00:00:00Z"


def image_tag(root: RootfsImage) -> str:
    """The name under which engines keep the image."""
    return f"aotforge/{root.name}:{root.digest[:16]}"


def image_id(root: RootfsImage) -> str:
    """`sha256:...`, as engines report it."""
    return f"sha256:{hashlib.sha256(_config(root)).hexdigest()}"


def docker_archive(root: RootfsImage, *, cache: Path) -> Path:
    """An archive for `docker load` and `podman load`, made once. Raises ContainerError."""
    places = CachePaths(cache=cache.absolute())
    path = places.archive(image_id(root).removeprefix("sha256:"))
    with storage_errors(path):
        if not path.is_file():
            with cache_lock(places, f"{path.stem}.archive", lambda: None):
                if not path.is_file():
                    with staged_file(path) as new:
                        _write(root, new)
    return path


def _write(root: RootfsImage, path: Path) -> None:
    config = _config(root)
    name, layer = f"{hashlib.sha256(config).hexdigest()}.json", f"{root.digest}/layer.tar"
    manifest = [{"Config": name, "RepoTags": [image_tag(root)], "Layers": [layer]}]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for member, data in ((name, config), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo(layer)
        info.size = root.tar.stat().st_size
        with root.tar.open("rb") as content:
            archive.addfile(info, content)


def _config(root: RootfsImage) -> bytes:
    fields = {
        "architecture": "amd64",
        "os": "linux",
        "created": _TIME,
        "config": {"Env": [f"{name}={value}" for name, value in root.environment], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{root.digest}"]},
        "history": [{"created": _TIME, "created_by": f"aotforge {root.name}"}],
    }
    return json.dumps(fields, sort_keys=True).encode()
