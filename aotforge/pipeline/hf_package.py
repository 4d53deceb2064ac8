"""A release as a package for Hugging Face's kernels (docs/operator-library.md)."""

from dataclasses import dataclass
from pathlib import Path

from aotforge.library.operator_functions import declared_functions
from aotforge.pack.reader import open_files
from aotforge.release.hf_kernel import write_hf_kernel
from aotforge.release.model import load_release_manifest
from aotforge.release.release import Release


@dataclass(frozen=True, kw_only=True)
class PackageReport:
    """The folder of a package, with its variants: one per build of a framework."""

    folder: Path
    variants: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {"folder": str(self.folder), "variants": list(self.variants)}

    def lines(self) -> list[str]:
        """Lines of text."""
        return [f"package in {self.folder}: {', '.join(self.variants)}"]


def package_release(root: Path, release: Path) -> PackageReport:
    """Writes <release>-hf-kernel beside the release folder, of the sources in `root`. Raises ReleaseError."""
    opened = Release.open(release)
    manifest = load_release_manifest(root / "manifests" / "release.yaml").at(opened.name)
    archs = {one.pack.name: open_files(one.pack).signature.archs for one in opened.packs()}
    folder = release.with_name(f"{release.name}-hf-kernel")
    variants = write_hf_kernel(release, manifest, archs, declared_functions(root / "kernels"), folder)
    return PackageReport(folder=folder, variants=variants)
