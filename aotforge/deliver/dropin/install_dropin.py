"""Drops a release into a torch/lib: checks it, unpacks, links."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import Architectures, load_architectures
from aotforge.base.hardware import load_hardware_runs
from aotforge.conformance.matrix import pack_serves
from aotforge.deliver.dropin.apply import DropInReport, drop_in
from aotforge.deliver.dropin.inputs import IMAGES, TorchLib, UnpackedRelease, read_prefix, read_torch_lib
from aotforge.deliver.dropin.store import ORIGINALS, STORE
from aotforge.errors import PackError, UnsupportedError
from aotforge.formats.api_level import library_level
from aotforge.formats.untrusted_file import read_regular
from aotforge.pack.dispatch import SIZE_LIMIT as DISPATCH_LIMIT
from aotforge.pack.dispatch import decode_dispatch
from aotforge.pack.model import DISPATCH_FILE, SIGNATURE_FILE
from aotforge.pack.signature import SIZE_LIMIT, decode_signature
from aotforge.pipeline.images import by_pack
from aotforge.plan.gates import pytorch_use
from aotforge.plan.planner import select_archs
from aotforge.release.finalize import check_finalized_release
from aotforge.targets.installed import native_archs

NO_HARDWARE = "no image has run on a real GPU"
"""README.md's caution on a release inside PyTorch."""


def install_dropin(
    checkout: Path,
    release: Path,
    folder: Path,
    *,
    archs: Sequence[str] = (),
    dry_run: bool = False,
) -> DropInReport:
    """Drops the release folder `release` into `folder`, a torch/lib, with the image packs of `archs`
    (default: all).

    Raises DropInError (also for a PyTorch of another feature release), ReleaseError for an incomplete
    release, OutputError, OutputBusyError.
    """
    torch = read_torch_lib(folder)
    opened = check_finalized_release(release, None)
    images = opened.of("images")
    if archs:
        architectures = load_architectures(checkout / "manifests")
        packs = [select_archs(architectures, group)[0] for group in by_pack(architectures, archs)]
        images = tuple(opened.archive("images", pack) for pack in packs)
    with tempfile.TemporaryDirectory(prefix="aotforge-drop-in-") as scratch:
        prefix = opened.unpack([opened.runtime, *images], Path(scratch))
        return _drop_in(checkout, read_prefix(prefix, release=opened.name), torch, dry_run=dry_run)


def install_dropin_prefix(checkout: Path, prefix: Path, release: str, folder: Path) -> DropInReport:
    """Drops in an unpacked release, as `./dev install` downloads it. Raises as `install_dropin`."""
    return _drop_in(checkout, read_prefix(prefix, release=release), read_torch_lib(folder))


def _drop_in(
    checkout: Path, source: UnpackedRelease, torch: TorchLib, *, dry_run: bool = False
) -> DropInReport:
    lost = lost_archs(source, torch.folder, load_architectures(checkout / "manifests"))
    report = replace(drop_in(source, torch, dry_run=dry_run), pytorch_use=_pytorch_use(source))
    if not report.changes:
        return report
    shown = lost if dry_run else _of_this_machine(lost)
    warnings = [caution(checkout)]
    if shown:
        warnings.insert(
            0,
            f"{', '.join(shown)} had images in {torch.folder}, and this release has none for them: "
            "PyTorch computes attention there by its own path until the drop-in is undone",
        )
    return replace(report, warnings=tuple(warnings))


def _pytorch_use(source: UnpackedRelease) -> str:
    """Whether PyTorch uses the images of the release: what check_gpu will find in the packs."""
    files = [
        source.prefix / "lib" / IMAGES / name / DISPATCH_FILE
        for name in source.packs
        if name.startswith("amd-")
    ]
    try:
        tables = [decode_dispatch(read_regular(file, limit=DISPATCH_LIMIT), file=str(file)) for file in files]
    except (PackError, OSError) as error:
        return f"no, because a pack cannot be read: {error}"
    gates = [gate for table in tables for gate in table.gates]
    archs = [arch for table in tables for arch in table.archs]
    return pytorch_use(gates, archs, library_level(source.soname))


def _of_this_machine(archs: Sequence[str]) -> Sequence[str]:
    """Those of `archs` that are GPUs of this machine; all of them where no GPU can be read, such as in a
    container's build."""
    try:
        native = native_archs()
    except UnsupportedError:
        return archs
    return [arch for arch in archs if arch in native]


def caution(checkout: Path) -> str:
    """The archs whose images have run on a GPU. Raises ManifestError."""
    archs = sorted({run.device.arch for run in load_hardware_runs(checkout / "manifests")})
    return f"images have run on a real GPU for {', '.join(archs)} only" if archs else NO_HARDWARE


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
