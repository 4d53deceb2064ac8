"""Drops a release into a torch/lib: checks it, unpacks, links."""

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from aotforge.base.architectures import Architectures, load_architectures
from aotforge.base.hardware import load_hardware_runs
from aotforge.conformance.matrix import pack_serves
from aotforge.deliver.dropin.apply import ORIGINALS, STORE, DropInReport, drop_in
from aotforge.deliver.dropin.inputs import IMAGES, TorchLib, UnpackedRelease, read_prefix, read_torch_lib
from aotforge.errors import PackError
from aotforge.formats.api_level import library_level
from aotforge.formats.untrusted_file import read_regular
from aotforge.pack.dispatch import SIZE_LIMIT as DISPATCH_LIMIT
from aotforge.pack.dispatch import decode_dispatch
from aotforge.pack.model import DISPATCH_FILE, DispatchTable
from aotforge.pipeline.images import by_pack
from aotforge.plan.gates import pytorch_use
from aotforge.plan.planner import select_archs
from aotforge.release.finalize import check_finalized_release

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
    architectures = load_architectures(checkout / "manifests")
    images = source.prefix / "lib" / IMAGES
    upstream = [pack for pack in source.packs if any(images.joinpath(pack).glob("*/*.zip"))]
    served = {arch for arch in architectures.architectures for pack in upstream if pack_serves(pack, arch)}
    try:
        tables = {pack: _dispatch(images / pack) for pack in source.packs if pack not in upstream}
    except (PackError, OSError) as error:
        tables, use = {}, f"no, because a pack cannot be read: {error}"
    else:  # what check_gpu will find in the packs; AMD's own library takes every GPU that it knows
        amd = [table for pack, table in tables.items() if pack.startswith("amd-")]
        gates = [gate for table in amd for gate in table.gates]
        use = pytorch_use(
            gates, [arch for table in amd for arch in table.archs], library_level(source.soname)
        )
    served |= {arch for table in tables.values() for arch in table.archs}
    lost = lost_archs(served, torch.folder, architectures)
    report = replace(drop_in(source, torch, dry_run=dry_run), pytorch_use=use)
    warning = (
        f"{', '.join(lost)} had images in {torch.folder}, and this release has none for them: "
        "PyTorch computes attention there by its own path until the drop-in is undone"
    )
    warnings = (*([warning] if lost else []), caution(checkout))
    return replace(report, warnings=warnings if report.changes else ())


def _dispatch(pack: Path) -> DispatchTable:
    return decode_dispatch(read_regular(pack / DISPATCH_FILE, limit=DISPATCH_LIMIT), file=str(pack))


def caution(checkout: Path) -> str:
    """The archs whose images have run on a GPU. Raises ManifestError."""
    archs = sorted({run.device.arch for run in load_hardware_runs(checkout / "manifests")})
    return f"images have run on a real GPU for {', '.join(archs)} only" if archs else NO_HARDWARE


def lost_archs(served: Collection[str], folder: Path, architectures: Architectures) -> tuple[str, ...]:
    """Archs with images in `folder` (a torch/lib), before a drop-in or now, that are not `served`.

    A pack that serves no arch of the manifest is listed by its own name.
    """
    known = (*architectures.architectures, *architectures.other_archs)
    places = (folder / IMAGES, folder / STORE / ORIGINALS / IMAGES)
    packs = sorted({path.name for place in places for path in place.glob("amd-*") if path.is_dir()})
    before = dict.fromkeys(
        name for pack in packs for name in [arch for arch in known if pack_serves(pack, arch)] or [pack]
    )
    return tuple(name for name in before if name not in served)
