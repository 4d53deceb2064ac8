"""Releases: packs and the runtime in, tarballs with checksums out."""

from aotforge.release.assemble import assemble_release
from aotforge.release.earlier import check_not_verified, check_replaceable
from aotforge.release.manifest import ReleaseManifest, load_release_manifest, member_time
from aotforge.release.platform import measure_platform_tag
from aotforge.release.stamp import find_release, inputs_digest
from aotforge.release.values import ImageRecord, PackInput, PlatformTag, Release, ReleaseFile

__all__ = [
    "ImageRecord",
    "PackInput",
    "PlatformTag",
    "Release",
    "ReleaseFile",
    "ReleaseManifest",
    "assemble_release",
    "check_not_verified",
    "check_replaceable",
    "find_release",
    "inputs_digest",
    "load_release_manifest",
    "measure_platform_tag",
    "member_time",
]
