"""A release's folder into a torch/lib: its archives checked and unpacked, the compatibility matrix asked, the links made."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.conformance.matrix import load_matrix
from aotforge.deliver.dropin.apply import drop_in
from aotforge.deliver.dropin.model import Report, Source, TorchLib
from aotforge.deliver.dropin.source import read_source
from aotforge.deliver.dropin.torch_lib import read_torch_lib
from aotforge.deliver.extract import extract_release
from aotforge.deliver.pytorch.listing import list_release
from aotforge.errors import DropInError, UnknownNameError
from aotforge.pipeline.build_release import by_pack
from aotforge.plan.planner import select_archs
from aotforge.release.finalize import check_finalized_release


def install_dropin(
    checkout: Path,
    release: Path,
    folder: Path,
    *,
    archs: Sequence[str] = (),
    pytorch: str = "",
    fork: bool = False,
    dry_run: bool = False,
) -> Report:
    """Drops the release in the folder `release` into `folder`, a torch/lib, with the image packs of `archs` or all that it has.

    Raises DropInError (also when the matrix says no), ReleaseError for a folder that is no whole release, OutputError, OutputBusyError.
    """
    torch = read_torch_lib(folder, version=pytorch)
    names = check_finalized_release(release, None)
    listing = list_release(release)
    packs = _packs(checkout, archs) if archs else [pack for pack, _ in listing.images]
    with tempfile.TemporaryDirectory(prefix="aotforge-drop-in-") as scratch:
        extracted = extract_release(release, packs, Path(scratch))
        assert set(extracted.names) <= set(names)
        source = read_source(extracted.prefix, release=listing.release)
        return drop_in(source, torch, check=matrix_check(checkout, fork=fork), dry_run=dry_run)


def install_dropin_prefix(checkout: Path, prefix: Path, release: str, folder: Path) -> Report:
    """Drops an unpacked release in, as `invoke install` fetches it. Raises as `install_dropin`."""
    source = read_source(prefix, release=release)
    return drop_in(source, read_torch_lib(folder), check=matrix_check(checkout, fork=False))


def matrix_check(checkout: Path, *, fork: bool) -> Callable[[TorchLib, Source], None]:
    """What asks the matrix whether a PyTorch takes our release by a link; it raises DropInError when not. ManifestError is raised at once."""
    matrix = load_matrix(checkout)

    def check(torch: TorchLib, source: Source) -> None:
        if not torch.version:
            raise DropInError(
                f"{torch.folder} does not tell PyTorch's version",
                cause="there is no torch/version.py beside it",
                hint="add --pytorch VERSION, as `torch.__version__` gives it",
            )
        try:
            service = matrix.service(matrix.find(torch.version, fork=fork))
        except UnknownNameError as error:
            raise DropInError(
                f"nothing is known of PyTorch {torch.version} with release {source.release}",
                cause=error.what,
                hint="`./dev compat.show` lists what is known",
            ) from error
        strange = [name for name in torch.needed if name not in service.links]
        if strange:
            raise DropInError(
                f"release {source.release} must not be given to PyTorch {torch.version}, which loads {', '.join(strange)}",
                cause=service.reason or "the matrix has no drop-in for this name",
                hint=f"`./dev compat.explain --pytorch {torch.version}` gives the whole story",
            )

    return check


def _packs(checkout: Path, archs: Sequence[str]) -> list[str]:
    architectures = load_architectures(checkout / "manifests")
    return [select_archs(architectures, group)[0] for group in by_pack(checkout, archs)]
