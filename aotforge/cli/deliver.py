"""Tasks that bring releases to users: install, drop-in, the list of a place."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Output, Result, print_status
from aotforge.cli.publish import From, Trust, checked_index
from aotforge.cli.settings import ROOT
from aotforge.cli.values import OptionalArch, absolute, archs_of, cache_folder
from aotforge.errors import UnsupportedError

if TYPE_CHECKING:
    from aotforge.deliver.dropin.apply import DropInReport

TorchLib = Annotated[str, "torch/lib of an installed PyTorch; auto: the active environment's"]


def release_folder(folder: str | None, levels: Callable[[], tuple[str, ...]]) -> Path:
    """The named folder, else the newest release of an API level in `levels`, the preferred one first."""
    from aotforge.conformance.candidate import newest_release
    from aotforge.errors import ReleaseError

    if folder:
        return Path(folder).absolute()
    dist, wanted = ROOT / "releases" / "dist", levels()
    for level in wanted:
        with suppress(ReleaseError):
            return newest_release(dist / "finished", dist, levels=(level,))
    return newest_release(dist / "finished", dist, levels=wanted)


@command("release.list")
def list_(output: Output, from_: From = None, root: Trust = None) -> Report:
    """List the releases of a place, from its checked index.

    ./dev release.list --from https://example.org/aotriton --root root.json
    """
    from aotforge.deliver.install.install_release import install_errors

    with install_errors():
        return checked_index(from_, root, output=output)[1].index


@command("install")
def install(
    output: Output,
    prefix: Annotated[str | None, "a folder to install into, for AOTRITON_INSTALLED_PREFIX"] = None,
    pytorch_lib: Annotated[str | None, f"{TorchLib.__metadata__[0]}, to put the release into"] = None,
    arch: OptionalArch = None,
    from_: From = None,
    version: Annotated[str | None, "a release or an API level (default: the newest that fits)"] = None,
    pytorch: Annotated[
        str | None, "with --prefix: version of the PyTorch to build, selects the level"
    ] = None,
    rocm: Annotated[str | None, "ROCm version of the library (default: the machine's)"] = None,
    root: Trust = None,
    cache: Annotated[
        str | None, "folder for downloads and indexes (default: AOTFORGE_CACHE, else .aotforge/cache)"
    ] = None,
    allow_yanked: Annotated[bool, "install a release although it was yanked"] = False,
    uninstall: Annotated[bool, "remove what is installed in --prefix or --pytorch-lib"] = False,
) -> Report:
    """Install a published release: fetch what this machine needs, check all of it, install it atomically.

    ./dev install --prefix /opt/aotriton --arch gfx908 --from https://example.org/aotriton --root root.json
    ./dev install --pytorch-lib auto --arch native --from /mnt/aotriton --root root.json
    """
    from aotforge.base.architectures import load_architectures
    from aotforge.deliver.dropin.install_dropin import install_dropin_prefix
    from aotforge.deliver.install.choose import InstallRequest, this_machine
    from aotforge.deliver.install.install_release import install, install_errors

    if bool(prefix) == bool(pytorch_lib):
        raise UnsupportedError("one of --prefix DIR and --pytorch-lib TORCH/LIB is needed")
    torch_lib = _torch_lib(pytorch_lib) if pytorch_lib else None
    if uninstall:
        return _uninstall(prefix or "", torch_lib)
    if not arch:
        raise UnsupportedError("--arch is missing", hint="e.g. --arch gfx908")
    known = load_architectures(ROOT / "manifests").architectures
    request = InstallRequest(
        packs={name: known[name].pack for name in archs_of(arch)},
        version=version,
        levels=() if version else _levels(pytorch, torch_lib),
        rocm=rocm,
        prefix=absolute(prefix),
        torch_lib=torch_lib,
        allow_yanked=allow_yanked,
    )
    dropped: list[DropInReport] = []
    with install_errors(), output.bytes() as on_progress:
        reader, trusted = checked_index(from_, root, cache, output)
        done = install(
            reader,
            trusted.index,
            request,
            this_machine(os.environ),
            downloads=cache_folder(cache) / "downloads",
            drop_in=lambda unpacked, name, lib: dropped.append(
                install_dropin_prefix(ROOT, unpacked, name, lib)
            ),
            on_progress=on_progress,
        )
    notes = (*(note for report in dropped for note in report.notes()), *done.notes)
    done = replace(done, notes=notes, fresh=done.fresh and all(report.changes for report in dropped))
    return output.noted(done, done.notes)


def _levels(pytorch: str | None, torch_lib: Path | None) -> tuple[str, ...]:
    """API levels of an installed PyTorch by the names that it loads, else by the matrix; () for any."""
    from aotforge.conformance.matrix import levels_for, levels_of_names
    from aotforge.deliver.dropin.inputs import read_torch_lib

    if torch_lib:
        return levels_of_names(ROOT, read_torch_lib(torch_lib).needed)
    return levels_for(ROOT, pytorch) if pytorch else ()


def _uninstall(prefix: str, torch_lib: Path | None) -> Report:
    from aotforge.deliver.dropin.apply import undo
    from aotforge.deliver.install.prefix import uninstall

    if torch_lib:
        return undo(torch_lib, dry_run=False)
    release, count = uninstall(Path(prefix).absolute())
    return Result({"removed": release, "files": count}, [f"{release} was removed, {count} files"])


@command("dropin")
def dropin(
    pytorch_lib: TorchLib,
    release: Annotated[str | None, "a release's folder (default: the newest in releases/dist)"] = None,
    arch: OptionalArch = None,
    dry_run: Annotated[bool, "list what would change"] = False,
    undo: Annotated[bool, "restore what was there before"] = False,
) -> Report:
    """Put a release into an installed PyTorch, or remove it again.

    ./dev dropin --pytorch-lib auto --arch gfx908 --dry-run
    ./dev dropin --pytorch-lib auto --undo
    """
    from aotforge.deliver.dropin import apply
    from aotforge.deliver.dropin.install_dropin import install_dropin

    lib = _torch_lib(pytorch_lib)
    if undo:
        return apply.undo(lib, dry_run=dry_run)
    archs = archs_of(arch)
    chosen = release_folder(release, lambda: _levels(None, lib))
    return install_dropin(ROOT, chosen, lib, archs=archs, dry_run=dry_run)


def _torch_lib(flag: str) -> Path:
    """The folder that the flag names, or of the active environment's PyTorch."""
    if flag != "auto":
        return Path(flag).absolute()
    from aotforge.deliver.pytorch.installed import find_torch_lib

    folder = find_torch_lib(os.environ)
    print_status(f"note: PyTorch's libraries are in {folder}")
    return folder
