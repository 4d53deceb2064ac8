"""Drops a release into a torch/lib: checks it and the compatibility matrix, unpacks, links."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.conformance.matrix import load_matrix
from aotforge.deliver.dropin.apply import DropInReport, drop_in
from aotforge.deliver.dropin.inputs import TorchLib, UnpackedRelease, read_prefix, read_torch_lib
from aotforge.deliver.extract import extract_release
from aotforge.deliver.pytorch.pins import list_release
from aotforge.errors import DropInError, UnknownNameError
from aotforge.pipeline.images import by_pack
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
) -> DropInReport:
    """Drops the release folder `release` into `folder`, a torch/lib, with the image packs of `archs` (default: all).

    Raises DropInError (also when the matrix forbids it), ReleaseError for an incomplete release, OutputError,
    OutputBusyError.
    """
    torch = read_torch_lib(folder, version=pytorch)
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
        return drop_in(source, torch, check=matrix_check(checkout, fork=fork), dry_run=dry_run)


def install_dropin_prefix(checkout: Path, prefix: Path, release: str, folder: Path) -> DropInReport:
    """Drops in an unpacked release, as `./dev install` downloads it. Raises as `install_dropin`."""
    source = read_prefix(prefix, release=release)
    return drop_in(source, read_torch_lib(folder), check=matrix_check(checkout, fork=False))


def matrix_check(checkout: Path, *, fork: bool) -> Callable[[TorchLib, UnpackedRelease], None]:
    """A check that raises DropInError when the matrix forbids the pair. Raises ManifestError at once."""
    matrix = load_matrix(checkout)

    def check(torch: TorchLib, source: UnpackedRelease) -> None:
        if not torch.version:
            raise DropInError(
                f"the version of PyTorch in {torch.folder} is unknown",
                cause=f"{torch.folder.parent} has no version.py",
                hint="add --pytorch VERSION, the value of `torch.__version__`",
            )
        try:
            service = matrix.service(matrix.find(torch.version, fork=fork))
        except UnknownNameError as error:
            raise DropInError(
                f"no statement about PyTorch {torch.version} with release {source.release}",
                cause=error.what,
                hint="`./dev compat.show` lists the known versions",
            ) from error
        if forbidden := [name for name in torch.needed if name not in service.links]:
            raise DropInError(
                f"release {source.release} must not be given to PyTorch {torch.version}, which loads {', '.join(forbidden)}",
                cause=service.reason or "the matrix has no drop-in for this name",
                hint=f"`./dev compat.explain --pytorch {torch.version}` shows all statements",
            )

    return check
