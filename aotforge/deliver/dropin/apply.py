"""Putting a release into torch/lib and taking it out again, so that at every moment one whole state is in force.

Every name that a drop-in owns is a link to `.aotforge-dropin/current/<name>`, and `current` is a link to `originals` or to the release.
Names are handed over while `current` still leads to the originals, so nothing changes for who loads them; then one rename
of `current` switches library and images together. The loader sees the name in torch/lib, and dladdr returns it, so images are looked for
beside it. A run that dies anywhere is completed, or undone, by the next one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aotforge.base.files import exchange, link_or_copy, output_errors, output_lock, staged_folder
from aotforge.deliver.dropin.model import IMAGES, Report, Source, TorchLib
from aotforge.deliver.dropin.record import CURRENT, ORIGINALS, STORE, Record, load_record, save_record
from aotforge.errors import DropInError
from aotforge.formats.archive import sha256_file

_TEMPORARY = ".new"
_OWN = "images.json"
"""In a staged release: its images with their SHA-256. An installer that replaces PyTorch writes through our link, into that folder."""


def drop_in(
    source: Source,
    torch: TorchLib,
    *,
    check: Callable[[TorchLib, Source], None],
    dry_run: bool = False,
) -> Report:
    """Makes `torch` load the release in `source`. Safe to repeat; another release takes the earlier one's place.

    `check` raises when the compatibility matrix forbids the pair. Raises DropInError when PyTorch was linked to a name that the release
    does not serve, OutputError, OutputBusyError; torch/lib then is as it was.
    """
    strange = [name for name in torch.needed if name not in source.names]
    if strange:
        raise DropInError(
            f"PyTorch in {torch.folder} loads {', '.join(strange)}, release {source.release} serves {', '.join(source.names)}",
            cause="this PyTorch was built against another feature release of AOTriton, whose interface differs",
            hint="`invoke compat.which` says which release this version of PyTorch takes",
        )
    check(torch, source)
    folder, wanted = torch.folder, source.release
    record = load_record(folder)
    changes = _changes(folder, source, record)
    if dry_run or not changes:
        return Report(folder=folder, release=wanted, changes=changes, dry_run=dry_run)
    with _store(folder) as store:
        _keep_reinstalled(store)
        _stage(source, store / wanted)
        names = (*source.names, IMAGES)
        owned = tuple(sorted({*names, *(record.names if record else ())}))
        save_record(folder, Record(release=wanted, names=owned))
        (store / ORIGINALS).mkdir(exist_ok=True)
        if not (store / CURRENT).is_symlink():
            _point(store / CURRENT, ORIGINALS)
        _keep_originals(folder, [name for name in names if not _ours(folder, name)])
        for name in names:
            _link(folder, name)
        _point(store / CURRENT, wanted)
        _remove_others(store, {wanted, ORIGINALS})
    return Report(folder=folder, release=wanted, changes=changes, dry_run=False)


def undo(folder: Path, *, dry_run: bool = False) -> Report:
    """Puts back what was in `folder` (a torch/lib) before the first drop-in. Raises DropInError, OutputError."""
    if not folder.is_dir():
        raise DropInError(
            f"{folder} is not a folder", hint="name the torch/lib that the release was put into"
        )
    record = load_record(folder)
    if record is None:
        return Report(folder=folder, release="", changes=(), dry_run=dry_run)
    newer = {IMAGES} if _reinstalled(folder / STORE / CURRENT) else set()
    changes = tuple(
        f"{name}: "
        + ("the original" if name in newer or _there(folder / STORE / ORIGINALS / name) else "removed")
        for name in record.names
        if _ours(folder, name)
    )
    if not dry_run:
        with _store(folder) as store:
            if (store / ORIGINALS).is_dir():
                _keep_reinstalled(store)
                _point(store / CURRENT, ORIGINALS)
            for name in record.names:
                if _ours(folder, name):
                    _restore(folder, name)
            shutil.rmtree(store)
    return Report(folder=folder, release=record.release, changes=changes, dry_run=dry_run)


def _changes(folder: Path, source: Source, record: Record | None) -> tuple[str, ...]:
    store = folder / STORE
    current = str((store / CURRENT).readlink()) if (store / CURRENT).is_symlink() else ""
    lines = [
        f"{name}: a link to release {source.release}"
        + ("" if not _there(folder / name) else ", the original is kept")
        for name in (*source.names, IMAGES)
        if not _ours(folder, name)
    ]
    if record is None or current != source.release:
        lines.append(
            f"{CURRENT}: {source.release}"
            + (f" instead of {current}" if current not in {"", ORIGINALS} else "")
        )
    elif not _same(source, store / source.release):
        lines.append(f"{source.release}: replaced, its files are not those of this release")
    return tuple(lines)


def _same(source: Source, staged: Path) -> bool:
    """Whether the staged copy holds exactly the release's library and images."""
    if not staged.is_dir():
        return False
    lib = source.prefix / "lib"
    wanted = {source.soname: sha256_file(lib / source.soname)}
    wanted |= {
        path.relative_to(lib).as_posix(): sha256_file(path)
        for path in (lib / IMAGES).rglob("*")
        if path.is_file()
    }
    files = [
        path
        for path in staged.rglob("*")
        if path.is_file() and not path.is_symlink() and path != staged / _OWN
    ]
    return wanted == {path.relative_to(staged).as_posix(): sha256_file(path) for path in files} and all(
        _there(staged / name) for name in source.names
    )


def _stage(source: Source, place: Path) -> None:
    """A copy of the release, flat: the library's names beside the images, as torch/lib has them."""
    if _same(source, place):
        return
    with staged_folder(place) as staged, output_errors(place):
        shutil.copyfile(source.prefix / "lib" / source.soname, staged / source.soname)
        (staged / source.soname).chmod(0o755)
        for name in source.names:
            if name != source.soname:
                (staged / name).symlink_to(source.soname)
        shutil.copytree(source.prefix / "lib" / IMAGES, staged / IMAGES, copy_function=shutil.copyfile)
        own = {name: sha256_file(path) for name, path in _files(staged / IMAGES)}
        (staged / _OWN).write_text(json.dumps(own, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _reinstalled(staged: Path) -> list[str]:
    """Files among a staged release's images that are not its own: those of a PyTorch that was installed since. Raises DropInError."""
    try:
        own = json.loads((staged / _OWN).read_bytes())
        return sorted(name for name, path in _files(staged / IMAGES) if own.get(name) != sha256_file(path))
    except FileNotFoundError:  # no release is in force
        return []
    except (OSError, ValueError, AttributeError) as error:
        raise DropInError(
            f"{staged / _OWN} cannot be used: {error}",
            cause="it was edited or damaged, so PyTorch's own images cannot be told from the release's",
            hint="reinstall PyTorch, after removing its folder",
        ) from error


def _keep_reinstalled(store: Path) -> None:
    """Images that came through our link with another PyTorch become the originals, in the place of the replaced PyTorch's."""
    staged, kept = store / CURRENT, store / ORIGINALS / IMAGES
    if not (names := _reinstalled(staged)):
        return
    new = kept.with_name(f"{IMAGES}{_TEMPORARY}")
    _remove(new)
    for name in names:
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(staged / IMAGES / name, new / name)
    _replace(new, kept)


def _keep_originals(folder: Path, names: list[str]) -> None:
    """Copies of what will be replaced, all before the first is: some are links to others."""
    for name in names:
        path, kept = folder / name, folder / STORE / ORIGINALS / name
        if _there(path):
            _clone(path, kept)
        elif not _is_folder(kept):  # of a PyTorch that was replaced by one without it
            _remove(kept)


def _link(folder: Path, name: str) -> None:
    """Turns an entry of torch/lib into a link of ours; while `current` leads to the originals, that changes nothing."""
    if _ours(folder, name):
        return
    new = _fresh(folder, name)
    new.symlink_to(_target(name))
    _replace(new, folder / name)


def _restore(folder: Path, name: str) -> None:
    path, kept = folder / name, folder / STORE / ORIGINALS / name
    if not _there(kept):
        path.unlink()
        return
    new = _fresh(folder, name)
    _clone(kept, new)
    _replace(new, path)


def _clone(path: Path, copy: Path) -> None:
    """The same entry under another name, sharing its files' bytes where the file system can; `copy` appears whole or not at all."""
    partial = copy.with_name(f"{copy.name}{_TEMPORARY}")
    for left in (partial, copy):
        _remove(left)
    if path.is_symlink():
        partial.symlink_to(path.readlink())
    elif path.is_dir():
        shutil.copytree(path, partial, symlinks=True, copy_function=link_or_copy)
    else:
        link_or_copy(path, partial)
    partial.rename(copy)


def _replace(new: Path, path: Path) -> None:
    """Puts `new` in the place of `path`. rename(2) cannot put a link over a folder or back, so these are swapped."""
    if (_is_folder(path) or _is_folder(new)) and _there(path):
        if not exchange(new, path):
            aside = new.with_name(f"{new.name}.old")
            _remove(aside)
            path.rename(aside)
            new.rename(path)
            new = aside
        _remove(new)
    else:
        new.replace(path)


def _fresh(folder: Path, name: str) -> Path:
    new = folder / STORE / f"{name}{_TEMPORARY}"
    _remove(new)
    return new


def _remove(path: Path) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _point(link: Path, target: str) -> None:
    new = link.with_name(f"{link.name}{_TEMPORARY}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _remove_others(store: Path, kept: set[str]) -> None:
    for path in store.iterdir():
        if _is_folder(path) and path.name not in kept:
            shutil.rmtree(path)


def _target(name: str) -> str:
    return f"{STORE}/{CURRENT}/{name}"


def _ours(folder: Path, name: str) -> bool:
    path = folder / name
    return path.is_symlink() and str(path.readlink()) == _target(name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _there(path: Path) -> bool:
    return os.path.lexists(path)


@contextmanager
def _store(folder: Path) -> Iterator[Path]:
    """The drop-in's own folder, held against other runs."""
    store = folder / STORE
    with output_lock(store / "dropin"), output_errors(store):
        yield store
