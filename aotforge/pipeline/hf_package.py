"""A release as a package for Hugging Face's kernels (docs/operator-library.md)."""

from pathlib import Path

from aotforge.library.operator_functions import declared_functions
from aotforge.pack.reader import open_files
from aotforge.release.hf_kernel import write_hf_kernel
from aotforge.release.model import load_release_manifest
from aotforge.release.release import Release


def package_release(root: Path, release: Path) -> tuple[Path, tuple[str, ...]]:
    """Writes <release>-hf-kernel beside the release; its variants, one per framework's build."""
    opened = Release.open(release)
    manifest = load_release_manifest(root / "manifests" / "release.yaml").at(opened.name)
    archs = {released.pack.name: open_files(released.pack).signature.archs for released in opened.packs()}
    folder = release.with_name(f"{release.name}-hf-kernel")
    return folder, write_hf_kernel(release, manifest, archs, declared_functions(root / "kernels"), folder)
