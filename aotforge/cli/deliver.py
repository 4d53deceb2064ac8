"""Tasks that bring releases to users: install, PyTorch, a web page."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.cli.command import (
    HOME,
    ROOT,
    Json,
    ProgressKind,
    Quiet,
    absolute,
    archs_of,
    cache_folder,
    cli_command,
    print_either,
    print_report,
    print_result,
    print_status,
    progress_events,
)
from aotforge.cli.conformance import Fork
from aotforge.cli.publish import From, Trust, checked_index

if TYPE_CHECKING:
    from aotforge.deliver.dropin.apply import DropInReport

Release = Annotated[str, "a release's folder (default: the newest in releases/dist)"]


def _release(folder: str, levels: Callable[[], tuple[str, ...]]) -> Path:
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


def _releases(folder: str) -> Path:
    from aotforge.pipeline.make_release import default_output

    return Path(folder).absolute() if folder else default_output(ROOT)


@cli_command("release.list")
def list_(from_: From = None, root: Trust = None, json: Json = False) -> None:
    """List the releases of a place, from its checked index."""
    from aotforge.deliver.install.install_release import install_errors

    with install_errors():
        _, trusted = checked_index(from_, root, quiet=json)
    print_report(trusted.index, json=json)


@cli_command("install")
def install(
    prefix: Annotated[str | None, "a folder to install into, for PyTorch's AOTRITON_INSTALLED_PREFIX"] = None,
    pytorch_lib: Annotated[
        str | None,
        "torch/lib of an installed PyTorch to put the release into; auto: the active environment's",
    ] = None,
    arch: Annotated[
        str | None,
        "arch or product, e.g. gfx908 or MI100, several separated by commas; native: this machine's GPUs",
    ] = None,
    from_: From = None,
    version: Annotated[
        str | None,
        "a release (0.11.2b-r1) or an API level (0.11.2b); default: the newest that --pytorch or --pytorch-lib takes",
    ] = None,
    pytorch: Annotated[
        str | None,
        "version of the PyTorch that will be built with --prefix, e.g. 2.13: selects the API level that it pins",
    ] = None,
    rocm: Annotated[
        str | None, "ROCm version whose library to take (default: the one in ROCM_PATH or /opt/rocm)"
    ] = None,
    root: Trust = None,
    cache: Annotated[
        str | None,
        "folder for downloads and the last seen indexes (default: AOTFORGE_CACHE, else .aotforge/cache)",
    ] = None,
    allow_yanked: Annotated[bool, "install a release although it was yanked"] = False,
    uninstall: Annotated[bool, "remove what is installed in --prefix or --pytorch-lib"] = False,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Install a published release: fetch what this machine and arch need, check all of it, install it atomically."""
    from aotforge.base.architectures import load_architectures
    from aotforge.base.progress import byte_progress
    from aotforge.deliver.dropin.install_dropin import install_dropin_prefix
    from aotforge.deliver.install.choose import InstallRequest, this_machine
    from aotforge.deliver.install.install_release import install, install_errors
    from aotforge.errors import UnsupportedError

    events = progress_events(progress, quiet=quiet)
    if bool(prefix) == bool(pytorch_lib):
        raise UnsupportedError("one of --prefix DIR and --pytorch-lib TORCH/LIB is needed")
    torch_lib = _torch_lib(pytorch_lib) if pytorch_lib else None
    if uninstall:
        if torch_lib:
            _undo(torch_lib, dry_run=False, json=json)
        else:
            _uninstall(prefix or "", json=json)
        return
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
    with install_errors(), byte_progress(quiet=quiet or json, events=events) as on_progress:
        reader, trusted = checked_index(from_, root, cache, quiet=quiet or json, events=events)
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
    print_report(done, json=json, notes=() if quiet else done.notes)


def _levels(pytorch: str | None, torch_lib: Path | None) -> tuple[str, ...]:
    """API levels for an installed PyTorch by the names that it loads, for another by the matrix; () for any."""
    from aotforge.conformance.matrix import levels_for, levels_of_names
    from aotforge.deliver.dropin.inputs import read_torch_lib

    if torch_lib:
        return levels_of_names(ROOT, read_torch_lib(torch_lib).needed)
    return levels_for(ROOT, pytorch) if pytorch else ()


def _uninstall(prefix: str, *, json: bool) -> None:
    from aotforge.deliver.install.prefix import uninstall

    release, count = uninstall(Path(prefix).absolute())
    print_either({"removed": release, "files": count}, [f"{release} was removed, {count} files"], json=json)


@cli_command("release.pins")
def pins(
    pytorch: Annotated[str, "version whose build is to download it, e.g. 2.11"],
    release: Release = "",
    url: Annotated[str, "where the release will be, without its name (default: http://127.0.0.1:8080/)"] = "",
    fork: Fork = False,
    prefix: Annotated[bool, "instead the way that needs no edit: AOTRITON_INSTALLED_PREFIX"] = False,
) -> None:
    """The lines for PyTorch's cmake/External/aotriton.cmake that make its build download a release."""
    from aotforge.conformance.matrix import levels_for
    from aotforge.deliver.pytorch.pins import list_release, pins_for_pytorch, prefix_text

    chosen = _release(release, lambda: levels_for(ROOT, pytorch, fork=fork))
    place = url or "http://127.0.0.1:8080/"
    text = pins_for_pytorch(ROOT, chosen, pytorch=pytorch, fork=fork, url=place)
    print_result((prefix_text(list_release(chosen), place) if prefix else text).rstrip("\n"))


@cli_command("release.dropin")
def dropin(
    pytorch_lib: Annotated[str, "torch/lib of the installed PyTorch; auto: the active environment's"],
    release: Release = "",
    arch: Annotated[
        str,
        "arch or product, e.g. gfx908 or MI100, several separated by commas; native: this machine's GPUs "
        "(default: every pack of the release)",
    ] = "",
    dry_run: Annotated[bool, "list what would change"] = False,
    undo: Annotated[bool, "restore what was there before"] = False,
    json: Json = False,
) -> None:
    """Put a release into an installed PyTorch, or remove it again."""
    from aotforge.deliver.dropin.install_dropin import install_dropin

    lib = _torch_lib(pytorch_lib)
    if undo:
        _undo(lib, dry_run=dry_run, json=json)
        return
    archs = archs_of(arch)
    chosen = _release(release, lambda: _levels(None, lib))
    report = install_dropin(ROOT, chosen, lib, archs=archs, dry_run=dry_run)
    _print_dropin(report, json=json)


def _torch_lib(flag: str) -> Path:
    """The folder that the flag names, or of the active environment's PyTorch."""
    if flag != "auto":
        return Path(flag).absolute()
    from aotforge.deliver.pytorch.installed import find_torch_lib

    found = find_torch_lib(os.environ)
    print_status(f"note: PyTorch's libraries are in {found}")
    return found


def _undo(torch_lib: Path, *, dry_run: bool, json: bool) -> None:
    from aotforge.deliver.dropin.apply import undo

    _print_dropin(undo(torch_lib, dry_run=dry_run), json=json)


def _print_dropin(report: "DropInReport", *, json: bool) -> None:
    print_either(asdict(report) | {"folder": str(report.folder)}, report.lines(), json=json)


@cli_command("release.page")
def page(
    url: Annotated[str, "where the folder will be, for the commands on the page"],
    folder: Annotated[
        str, "folder that has finished releases and gets index.html (default: releases/dist/finished)"
    ] = "",
    from_: Annotated[str | None, "also list yanked releases, from this place's index"] = None,
    root: Annotated[str | None, "the root of trust for --from"] = None,
    docs: Annotated[
        bool, "also build the documentation (as ./dev docs) into docs/ beside the page, which links to it"
    ] = False,
) -> None:
    """Write the static page of releases: downloads, digests, verification, installation, compatibility."""
    from aotforge.deliver.install.install_release import install_errors
    from aotforge.deliver.page import DOCS, make_site

    yanked: dict[str, str] = {}
    if from_:
        with install_errors():
            _, trusted = checked_index(from_, root)
        yanked = trusted.index.yanked()
    if docs:
        from aotforge.devtools.docs_site import build_site

        print_report(build_site(ROOT, _releases(folder) / DOCS, home=HOME), json=False)
    print_result(f"{make_site(ROOT, _releases(folder), base_url=url, yanked=yanked)}")
