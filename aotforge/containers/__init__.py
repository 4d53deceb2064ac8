"""Containers: locked Debian packages and wheels in, root filesystems with a fixed digest out (docs/containers.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.containers.image import docker_archive, image_id, image_tag
    from aotforge.containers.roots import ensure_root, named_roots, unpacked
    from aotforge.containers.values import Places, Root

__all__ = [
    "Places",
    "Root",
    "docker_archive",
    "ensure_root",
    "image_id",
    "image_tag",
    "named_roots",
    "unpacked",
]

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("docker_archive", "image_id", "image_tag"), "aotforge.containers.image"),
        **dict.fromkeys(("ensure_root", "named_roots", "unpacked"), "aotforge.containers.roots"),
        **dict.fromkeys(("Places", "Root"), "aotforge.containers.values"),
    },
)
