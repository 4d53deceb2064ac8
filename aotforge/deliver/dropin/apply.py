"""Drops a release into torch/lib and removes it again; at every moment either state is complete.

Every name of a drop-in is a link to `.aotforge-dropin/current/<name>`, and `current` is a link to
`originals` or to the release. Names become links while `current` still selects the originals, so that the
loader sees no change; then one rename of `current` switches library and images together. The loader opens
the name in torch/lib, and dladdr returns it, so the library looks for images next to it. A run that is
killed is completed, or undone, by the next one.
"""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from aotforge.base.files import errors_as, exchange, link_or_copy, make_folders, write_atomic
from aotforge.base.manifest_reader import Manifest
from aotforge.deliver.dropin.inputs import IMAGES, TorchLib, UnpackedRelease
from aotforge.deliver.dropin.store import (
    CURRENT,
    IMAGE_SUMS,
    ORIGINALS,
    RECORD,
    STORE,
    is_plain_name,
    open_store,
)
from aotforge.errors import DropInError, OutputError
from aotforge.formats.api_level import library_level
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_file import parse_json, read_regular

_REINSTALL = "remove {} and reinstall PyTorch (pip install --force-reinstall --no-deps torch==VERSION)"
_AGAIN = "nothing is lost: run the same command again, or with --undo, once this is corrected"


@dataclass(frozen=True, kw_only=True)
class DropInReport:
    """Changes of a drop-in or of undoing it, made or planned: one line per name, none when there was
    nothing to do.

    `pytorch_use`: `yes`, or `no, because ...`; empty for undoing. `warnings`: what stops working with them.
    """

    folder: Path
    release: str
    changes: tuple[str, ...]
    dry_run: bool
    pytorch_use: str = ""
    warnings: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Whether PyTorch uses the images, and the warnings."""
        use = [f"PyTorch will use these images: {self.pytorch_use}"] if self.pytorch_use else []
        return [*use, *(f"warning: {warning}" for warning in self.warnings)]

    def lines(self) -> list[str]:
        """Lines of text: the notes, the most important first, then the changes."""
        changes = [f"{'would change: ' if self.dry_run else ''}{change}" for change in self.changes]
        return [*self.notes(), *(changes or ["nothing to do"])]


def _file_name(name: str) -> str:
    """The name, which is joined to torch/lib or the store and unlinked there."""
    if not is_plain_name(name):
        raise ValueError(f"{name!r} is not a file name")
    return name


_Name = Annotated[str, AfterValidator(_file_name)]


class _Record(Manifest):
    """`names`: entries of torch/lib that are links of the drop-in; `originals`: those that PyTorch had;
    `release`: the release that they select; `staged`: all releases with a folder in the store, which no
    others may be removed."""

    format: Literal[2]
    names: tuple[_Name, ...]
    originals: tuple[_Name, ...]
    release: _Name
    staged: tuple[_Name, ...]


def drop_in(source: UnpackedRelease, torch: TorchLib, *, dry_run: bool = False) -> DropInReport:
    """Makes `torch` load the release in `source`. Safe to repeat; replaces an earlier release.

    The release gets every name that PyTorch's libraries need: all names of its feature release mean the
    same interface. Raises DropInError for a name of another one, OutputError, OutputBusyError; torch/lib is
    then unchanged.
    """
    level = library_level(source.soname)
    if others := [name for name in torch.needed if library_level(name) != level]:
        needed = library_level(others[0])
        raise DropInError(
            f"PyTorch in {torch.folder} needs {', '.join(others)}, and release "
            f"{source.release} serves {level}.*",
            cause=f"{needed} is another feature release of AOTriton, whose interface differs",
            hint=f"drop in a release of API level {needed}; `./dev compat` lists the levels",
        )
    source = replace(source, names=tuple(sorted({*source.names, *torch.needed})))
    folder = torch.folder
    with open_store(folder, make=False) as store:
        changes = _planned_changes(store, source, _load_record(store))
    report = DropInReport(folder=folder, release=source.release, changes=changes, dry_run=dry_run)
    if dry_run or not changes:
        return report
    with open_store(folder, make=True) as store, _write_errors(store):
        record = _load_record(store)
        _adopt_reinstalled_images(store)
        names = (*source.names, IMAGES)
        # recorded first: a run that is killed leaves no folder that is not recorded
        removed = _removed(folder, store, {*names, *(record.names if record else ())})
        written = _write_record(store, source.release, names, record, removed)
        _stage(source, store / source.release)
        make_folders(store / ORIGINALS)
        if not (store / CURRENT).is_symlink():
            _select(store, ORIGINALS)
        unlinked = [name for name in names if not _is_linked(folder, name)]
        _back_up(folder, store, [name for name in unlinked if name not in removed])
        for name in unlinked:  # no change for the loader while `current` selects the originals
            new = _temporary(store, name)
            new.symlink_to(Path(STORE, CURRENT, name))
            _replace(new, folder / name)
        _select(store, source.release)
        for name in set(written.staged) - {source.release}:
            _remove_release(store, name)
        _save_record(store, written.model_copy(update={"staged": (source.release,)}))
    return report


def _write_errors(store: Path) -> AbstractContextManager[None]:
    """The system's errors as OutputError."""
    return errors_as(OutputError, store, hint=_AGAIN)


def _write_record(
    store: Path, release: str, names: tuple[str, ...], record: _Record | None, removed: set[str]
) -> _Record:
    folder = store.parent
    owned = tuple(sorted({*names, *(record.names if record else ())}))
    kept, staged = (record.originals, record.staged) if record else ((), ())
    originals = [
        name
        for name in owned
        if (
            lexists(store / ORIGINALS / name) or name in kept
            if name in removed or _is_linked(folder, name)
            else lexists(folder / name)
        )
    ]
    made = _Record(
        format=2,
        names=owned,
        originals=tuple(originals),
        release=release,
        staged=tuple(sorted({*staged, release})),
    )
    _save_record(store, made)
    return made


def _save_record(store: Path, record: _Record) -> None:
    write_atomic(store / RECORD, f"{record.model_dump_json(indent=1)}\n".encode())


def _remove_release(store: Path, name: str) -> None:
    """Removes a staged release and partial copies of it, and nothing that is not one. Its sums go last, so
    that a killed run can be repeated."""
    path = store / name
    for partial in (f"{name}.new", f"{name}.new.old"):
        _remove(store / partial)
    if not _is_folder(path):
        return
    if (path / IMAGE_SUMS).is_file():
        for entry in path.iterdir():
            if entry.name != IMAGE_SUMS:
                _remove(entry)
        (path / IMAGE_SUMS).unlink()
    with suppress(OSError):  # it has what this program did not put there
        path.rmdir()


def undo(folder: Path, *, dry_run: bool = False) -> DropInReport:
    """Restores the contents of `folder` (a torch/lib) before the first drop-in. Raises DropInError,
    OutputError."""
    if not folder.is_dir():
        raise DropInError(
            f"{folder} is not a folder", hint="name the torch/lib that the release was dropped into"
        )
    with open_store(folder, make=False) as store:
        record = _load_record(store)
        if record is None:
            _check_dangling(folder)
            return DropInReport(folder=folder, release="", changes=(), dry_run=dry_run)
        changes = _undo_changes(store, record)
    if dry_run:
        return DropInReport(folder=folder, release=record.release, changes=changes, dry_run=True)
    with open_store(folder, make=True) as store, _write_errors(store):
        _undo(folder, store, record)
        _empty_store(store, record)
    with suppress(OSError):  # it has what this program did not put there
        store.rmdir()
    return DropInReport(folder=folder, release=record.release, changes=changes, dry_run=False)


def _undo_changes(store: Path, record: _Record) -> tuple[str, ...]:
    """A line per name. Raises DropInError when an original that the record names is gone."""
    folder = store.parent
    linked = [name for name in record.names if _is_linked(folder, name)]
    removed = _removed(folder, store, record.names)
    restored = removed | {name for name in linked if lexists(store / ORIGINALS / name)}
    if _reinstalled_images(store / CURRENT):
        restored.add(IMAGES)
    if lost := [name for name in linked if name in record.originals and name not in restored]:
        raise DropInError(
            f"PyTorch's own {', '.join(lost)} cannot be restored: {folder / STORE / ORIGINALS} does not have "
            f"{'it' if len(lost) == 1 else 'them'}",
            cause="the kept originals were removed by hand",
            hint=_REINSTALL.format(folder),
        )
    return tuple(
        f"{name}: {'the original' if name in restored else 'removed'}"
        for name in record.names
        if name in linked or name in removed
    )


def _check_dangling(folder: Path) -> None:
    """Raises DropInError for links of a drop-in whose store is gone."""
    links = [path.name for path in folder.iterdir() if path.is_symlink() and _is_linked(folder, path.name)]
    if links:
        raise DropInError(
            f"{folder} has links of a drop-in without its record: {', '.join(sorted(links))}",
            cause=f"{folder / STORE} was removed by hand, and PyTorch's own files with it",
            hint=_REINSTALL.format(folder),
        )


def _removed(folder: Path, store: Path, names: Iterable[str]) -> set[str]:
    """Names that are missing in torch/lib and whose originals are kept: removed by hand, or by a killed run
    that could not exchange two entries. None where PyTorch was installed again, as another version: it may
    be without them."""
    present = [name for name in names if lexists(folder / name) and not _is_linked(folder, name)]
    if not all(_is_same(folder / name, store / ORIGINALS / name) for name in present):
        return set()
    return {name for name in names if not lexists(folder / name) and lexists(store / ORIGINALS / name)}


def _undo(folder: Path, store: Path, record: _Record) -> None:
    if (store / ORIGINALS).is_dir():
        _adopt_reinstalled_images(store)
        _select(store, ORIGINALS)
    removed = _removed(folder, store, record.names)
    for name in record.names:
        if not _is_linked(folder, name) and name not in removed:
            continue
        if lexists(original := store / ORIGINALS / name):
            _clone(original, new := _temporary(store, name))
            _replace(new, folder / name)
        else:
            (folder / name).unlink()


def _empty_store(store: Path, record: _Record) -> None:
    """Removes the entries that this program made; the record goes last, so that a killed run can be
    repeated."""
    for name in record.staged:
        _remove_release(store, name)
    for name in (ORIGINALS, CURRENT, f"{CURRENT}.new", *(f"{name}.new" for name in record.names)):
        _remove(store / name)
    for name in record.names:  # of a kill where two entries cannot be exchanged
        if lexists(store.parent / name):
            _remove(store / f"{name}.new.old")
    unfinished = [path.name for path in store.glob(f".{RECORD}.*")]
    for name in (*unfinished, ".dropin.lock", RECORD):
        _remove(store / name)


def _load_record(store: Path) -> _Record | None:
    """The store's record, None when there was no drop-in. Raises DropInError for a damaged one."""
    path = store / RECORD
    try:
        return _Record.model_validate_json(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DropInError(
            f"{path} cannot be used: {error}",
            cause="it was edited, or written by a newer version of this program",
            hint=f"restore the files in {path.parent / ORIGINALS} by hand, or reinstall PyTorch",
        ) from error


def _planned_changes(store: Path, source: UnpackedRelease, record: _Record | None) -> tuple[str, ...]:
    folder, link = store.parent, store / CURRENT
    current = str(link.readlink()) if link.is_symlink() else ""
    changes = [
        f"{name}: a link to release {source.release}"
        + (", the original is kept" if lexists(folder / name) else "")
        for name in (*source.names, IMAGES)
        if not _is_linked(folder, name)
    ]
    if record is None or current != source.release:
        replaced = f" instead of {current}" if current not in {"", ORIGINALS} else ""
        changes.append(f"{CURRENT}: {source.release}{replaced}")
    elif not _is_staged(source, store / source.release):
        changes.append(f"{source.release}: replaced, its files differ from this release's")
    return tuple(changes)


def _is_staged(source: UnpackedRelease, staged: Path) -> bool:
    """True when the staged copy holds exactly the release's library and images."""
    if not staged.is_dir() or not all(lexists(staged / name) for name in source.names):
        return False
    lib = source.prefix / "lib"
    images = {f"{IMAGES}/{name}": digest for name, digest in _sums(lib / IMAGES).items()}
    found = _sums(staged, links=False)
    found.pop(IMAGE_SUMS, None)
    return found == {source.soname: sha256_file(lib / source.soname)} | images


def _stage(source: UnpackedRelease, target: Path) -> None:
    """A flat copy of the release: the library's names next to the images, as in torch/lib."""
    if _is_staged(source, target):
        return
    lib, staged = source.prefix / "lib", _temporary(target.parent, target.name)
    staged.mkdir()
    shutil.copy(lib / source.soname, staged)
    for name in source.names:
        if name != source.soname:
            (staged / name).symlink_to(source.soname)
    for path in (lib / IMAGES, *sorted((lib / IMAGES).rglob("*"))):
        copy = staged / path.relative_to(lib)
        if path.is_dir():
            copy.mkdir()
        else:
            shutil.copy(path, copy)
    text = json.dumps(_sums(staged / IMAGES), indent=1, sort_keys=True) + "\n"
    (staged / IMAGE_SUMS).write_text(text, encoding="utf-8")
    _replace(staged, target)


def _sums(folder: Path, *, links: bool = True) -> dict[str, str]:
    """SHA-256 of the files below a folder by relative path, with or without links to files."""
    files = (path for path in folder.rglob("*") if path.is_file() and (links or not path.is_symlink()))
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def _reinstalled_images(staged: Path) -> list[str]:
    """Files among a staged release's images that a PyTorch installed since has written there. Raises
    DropInError."""
    try:
        own = parse_json(read_regular(staged / IMAGE_SUMS))
        return sorted(name for name, digest in _sums(staged / IMAGES).items() if own.get(name) != digest)
    except FileNotFoundError:  # no release is selected
        return []
    except (OSError, ValueError, AttributeError) as error:
        raise DropInError(
            f"{staged / IMAGE_SUMS} cannot be used: {error}",
            cause="it was edited or damaged, so PyTorch's images cannot be distinguished from the release's",
            hint="reinstall PyTorch, after removing its folder",
        ) from error


def _adopt_reinstalled_images(store: Path) -> None:
    """Images that another PyTorch wrote through the link replace the originals."""
    staged, originals = store / CURRENT, store / ORIGINALS / IMAGES
    if not (names := _reinstalled_images(staged)):
        return
    new = _temporary(originals.parent, IMAGES)
    for name in names:
        make_folders((new / name).parent)
        link_or_copy(staged / IMAGES / name, new / name)
    _replace(new, originals)


def _back_up(folder: Path, store: Path, names: Iterable[str]) -> None:
    """Copies of all entries before the first is replaced: some are links to others."""
    for name in names:
        path, original = folder / name, store / ORIGINALS / name
        if lexists(path):
            _clone(path, original)
        elif not _is_folder(original):  # of a PyTorch that was replaced by one without it
            _remove(original)


def _clone(path: Path, copy: Path) -> None:
    """The same entry under another name, with its modes and owners, and hard links where possible; `copy`
    appears complete or not at all."""
    partial = _temporary(copy.parent, copy.name)
    _remove(copy)
    if path.is_symlink():
        partial.symlink_to(path.readlink())
    elif path.is_dir():
        shutil.copytree(path, partial, symlinks=True, copy_function=link_or_copy)
    else:
        link_or_copy(path, partial)
    _copy_owners(path, partial)
    partial.rename(copy)


def _copy_owners(path: Path, copy: Path) -> None:
    """Gives copies that root made to the owners of their sources, as far as this user can."""
    inner = path.rglob("*") if _is_folder(path) else ()
    for source in (path, *inner):
        made, wanted = copy / source.relative_to(path), source.lstat()
        if (made.lstat().st_uid, made.lstat().st_gid) != (wanted.st_uid, wanted.st_gid):
            with suppress(PermissionError):
                os.chown(made, wanted.st_uid, wanted.st_gid, follow_symlinks=False)


def _replace(new: Path, path: Path) -> None:
    """Moves `new` to `path`. rename(2) cannot replace a folder by a link or a link by a folder: these are
    swapped."""
    if not lexists(path) or not (_is_folder(path) or _is_folder(new)):
        new.replace(path)
    elif exchange(new, path):
        _remove(new)
    else:
        old = new.with_name(f"{new.name}.old")
        _remove(old)
        path.rename(old)
        new.rename(path)
        _remove(old)


def _temporary(folder: Path, name: str) -> Path:
    """A path in `folder` without what a killed run left there."""
    new = folder / f"{name}.new"
    _remove(new)
    return new


def _remove(path: Path) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _select(store: Path, target: str) -> None:
    """Points `current` to the originals or a release, in one step."""
    new = _temporary(store, CURRENT)
    new.symlink_to(target)
    new.replace(store / CURRENT)


def _is_linked(folder: Path, name: str) -> bool:
    path = folder / name
    return path.is_symlink() and path.readlink() == Path(STORE, CURRENT, name)


def _is_same(path: Path, other: Path) -> bool:
    """True when both are links to the same place, equal files, or folders of equal files."""
    if path.is_symlink() or other.is_symlink():
        return path.is_symlink() and other.is_symlink() and path.readlink() == other.readlink()
    if path.is_dir() and other.is_dir():
        return _sums(path) == _sums(other)
    return path.is_file() and other.is_file() and sha256_file(path) == sha256_file(other)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
