"""Drops a release into a torch/lib: checks it, unpacks, links."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import Architectures, load_architectures
from aotforge.base.hardware import load_hardware_runs
from aotforge.conformance.recommend import pack_serves
from aotforge.deliver.dropin.apply import DropInReport, drop_in
from aotforge.deliver.dropin.inputs import IMAGES, TorchLib, UnpackedRelease, read_prefix, read_torch_lib
from aotforge.deliver.dropin.store import ORIGINALS, STORE
from aotforge.deliver.extract import extract_release
from aotforge.deliver.pytorch.pins import list_release
from aotforge.errors import PackError
from aotforge.pack.model import SIGNATURE_FILE
from aotforge.pack.signature import SIZE_LIMIT, decode_signature
from aotforge.pipeline.images import by_pack
from aotforge.plan.planner import select_archs
from aotforge.release.finalize import check_finalized_release

NO_HARDWARE = "no image has run on a real GPU"
"""README.md's caution on a release inside PyTorch."""
PARTIAL = (
    "Where the images do not serve all attention that PyTorch may request, PyTorch uses its own path; "
    "AOTFORGE_PARTIAL_PACK=1 in the environment makes it use these images (docs/runtime.md)"
)


def install_dropin(
    checkout: Path,
    release: Path,
    folder: Path,
    *,
    archs: Sequence[str] = (),
    dry_run: bool = False,
) -> DropInReport:
    """Drops the release folder `release` into `folder`, a torch/lib, with the image packs of `archs` (default: all).

    Raises DropInError (also for a PyTorch of another feature release), ReleaseError for an incomplete release,
    OutputError, OutputBusyError.
    """
    torch = read_torch_lib(folder)
    names = check_finalized_release(release, None)
    listing = list_release(release)
    packs = [pack for pack, _ in listing.images]
    if archs:
        architectures = load_architectures(checkout / "manifests")
        packs = [select_archs(architectures, group)[0] for group in by_pack(checkout, archs)]
    with tempfile.TemporaryDirectory(prefix="aotforge-drop-in-") as scratch:
        extracted = extract_release(release, packs, Path(scratch))
        assert set(extracted.names) <= set(names)
        source = read_prefix(extracted.prefix, release=listing.release)
        return _drop_in(checkout, source, torch, dry_run=dry_run)


def install_dropin_prefix(checkout: Path, prefix: Path, release: str, folder: Path) -> DropInReport:
    """Drops in an unpacked release, as `./dev install` downloads it. Raises as `install_dropin`."""
    return _drop_in(checkout, read_prefix(prefix, release=release), read_torch_lib(folder))


def _drop_in(
    checkout: Path, source: UnpackedRelease, torch: TorchLib, *, dry_run: bool = False
) -> DropInReport:
    lost = lost_archs(source, torch.folder, load_architectures(checkout / "manifests"))
    report = drop_in(source, torch, dry_run=dry_run)
    if not report.changes:
        return report
    warnings = tuple(
        f"{arch} had images in {torch.folder} and has none with this release: attention fails there until the drop-in is undone"
        for arch in lost
    )
    return replace(report, warnings=(*warnings, caution(checkout)))


def caution(checkout: Path) -> str:
    """The archs whose images have run on a GPU, and what PyTorch does without images. Raises ManifestError."""
    archs = sorted({run.device.arch for run in load_hardware_runs(checkout / "manifests")})
    seen = f"images have run on a real GPU for {', '.join(archs)} only" if archs else NO_HARDWARE
    return f"{seen}. {PARTIAL}"


def lost_archs(source: UnpackedRelease, folder: Path, architectures: Architectures) -> tuple[str, ...]:
    """Archs with images in `folder` (a torch/lib), before a drop-in or now, that the release has none for.

    A pack that serves no arch of the manifest is listed by its own name.
    """
    known = (*architectures.architectures, *architectures.other_archs)
    places = (folder / IMAGES, folder / STORE / ORIGINALS / IMAGES)
    packs = sorted({path.name for place in places for path in place.glob("amd-*") if path.is_dir()})
    before = dict.fromkeys(
        name for pack in packs for name in [arch for arch in known if pack_serves(pack, arch)] or [pack]
    )
    images = source.prefix / "lib" / IMAGES
    after = {arch for pack in source.packs for arch in _archs_of(images / pack, known)}
    return tuple(name for name in before if name not in after)


def _archs_of(pack: Path, known: Sequence[str]) -> Sequence[str]:
    """The archs that a pack of ours has images for; by its name when its signature cannot be read."""
    try:
        with (pack / SIGNATURE_FILE).open("rb") as file:
            return decode_signature(file.read(SIZE_LIMIT), file=str(pack)).archs
    except (OSError, PackError):
        return [arch for arch in known if pack_serves(pack.name, arch)]
