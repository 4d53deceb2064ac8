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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from aotforge.base.files import (
    errors_as,
    link_or_copy,
    make_folders,
    output_errors,
    output_lock,
    swap,
    write_atomic,
)
from aotforge.base.manifest_reader import Manifest
from aotforge.deliver.dropin.inputs import IMAGES, TorchLib, UnpackedRelease
from aotforge.errors import DropInError, OutputError
from aotforge.formats.api_level import library_level
from aotforge.formats.archive import sha256_file
from aotforge.formats.untrusted_file import parse_json, read_regular

STORE, ORIGINALS, CURRENT, RECORD = ".aotforge-dropin", "originals", "current", "record.json"
IMAGE_SUMS = "images.json"
"""In a staged release: SHA-256 of its images. An installer that replaces PyTorch writes its own into that
folder."""

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

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {**vars(self), "folder": str(self.folder)}

    def notes(self) -> list[str]:
        """Whether PyTorch uses the images, and the warnings."""
        use = [f"PyTorch will use these images: {self.pytorch_use}"] if self.pytorch_use else []
        return [*use, *(f"warning: {warning}" for warning in self.warnings)]

    def lines(self) -> list[str]:
        """Lines of text: the notes, the most important first, then the changes."""
        changes = [f"{'would change: ' if self.dry_run else ''}{change}" for change in self.changes]
        return [*self.notes(), *(changes or ["nothing to do"])]


def _file_name(name: str) -> str:
    """The name of an entry, which is joined to torch/lib or the store and unlinked there."""
    if "/" in name or "\0" in name or name in {"", ".", ".."}:
        raise ValueError(f"{name!r} is not a file name")
    return name


_Name = Annotated[str, AfterValidator(_file_name)]


class _Record(Manifest):
    """`names`: entries of torch/lib that are links of the drop-in; `release`: the one that they select;
    `staged`: all releases with a folder in the store, which no others may be removed."""

    format: Literal[2] = 2
    names: tuple[_Name, ...]
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
    with _open_store(torch.folder, make=False) as store:
        _load_record(store)
        changes = _planned_changes(store, source)
    if changes and not dry_run:
        with _open_store(torch.folder, make=True) as store, errors_as(OutputError, store, hint=_AGAIN):
            _drop_in(store, source, _load_record(store))
    return DropInReport(folder=torch.folder, release=source.release, changes=changes, dry_run=dry_run)


def _drop_in(store: Path, source: UnpackedRelease, record: _Record | None) -> None:
    folder, names, staged = store.parent, {*source.names, IMAGES}, {source.release}
    if record:
        names, staged = names | {*record.names}, staged | {*record.staged}
    make_folders(store / ORIGINALS)
    _put_back(store, names)
    _adopt_reinstalled_images(store)
    # recorded first: a run that is killed leaves no folder that is not recorded
    made = _Record(names=tuple(sorted(names)), release=source.release, staged=tuple(sorted(staged)))
    _save_record(store, made)
    _stage(source, store / source.release)
    if not (store / CURRENT).is_symlink():
        _link(store, store / CURRENT, ORIGINALS)
    kept = _removed(store, names)
    unlinked = [name for name in (*source.names, IMAGES) if not _is_linked(folder / name)]
    for name in unlinked:  # all copies before the first is replaced: some are links to others
        if lexists(folder / name):
            _clone(folder / name, store / ORIGINALS / name)
        elif name not in kept:  # of a PyTorch that was replaced by one without it
            _remove(store / ORIGINALS / name)
    for name in unlinked:  # no change for the loader while `current` selects the originals
        _link(store, folder / name, Path(STORE, CURRENT, name))
    _link(store, store / CURRENT, source.release)
    _empty(store, staged - {source.release})
    _save_record(store, made.model_copy(update={"staged": (source.release,)}))


def _save_record(store: Path, record: _Record) -> None:
    write_atomic(store / RECORD, f"{record.model_dump_json(indent=1)}\n".encode())


def undo(folder: Path, *, dry_run: bool = False) -> DropInReport:
    """Restores the contents of `folder` (a torch/lib) before the first drop-in. Raises DropInError,
    OutputError."""
    if not folder.is_dir():
        raise DropInError(
            f"{folder} is not a folder", hint="name the torch/lib that the release was dropped into"
        )
    with _open_store(folder, make=False) as store:
        if (record := _load_record(store)) is None:
            return DropInReport(folder=folder, release="", changes=(), dry_run=dry_run)
        restored, reinstalled = _restored(store, record), _reinstalled_images(store / CURRENT)
    changes = tuple(
        f"{name}: {'the original' if original or (name == IMAGES and reinstalled) else 'removed'}"
        for name, original in restored.items()
    )
    if not dry_run:
        with _open_store(folder, make=True) as store, errors_as(OutputError, store, hint=_AGAIN):
            _undo(store, record)
        with suppress(OSError):  # it has what this program did not put there
            store.rmdir()
    return DropInReport(folder=folder, release=record.release, changes=changes, dry_run=dry_run)


def _undo(store: Path, record: _Record) -> None:
    _put_back(store, record.names)
    if (store / ORIGINALS).is_dir():
        _adopt_reinstalled_images(store)
        _link(store, store / CURRENT, ORIGINALS)
    for name in _removed(store, record.names):  # as links, so that a run which is killed knows them
        _link(store, store.parent / name, Path(STORE, CURRENT, name))
    for name, original in _restored(store, record).items():
        if original:
            _clone(original, new := _temporary(store, name))
            _replace(new, store.parent / name)
        else:
            (store.parent / name).unlink()
    _empty(store, {ORIGINALS, CURRENT, *record.names, *record.staged})
    for left in store.glob(f".{RECORD}.*"):
        _remove(left)
    for name in (".dropin.lock", RECORD):  # the record last, so that a killed run can be repeated
        _remove(store / name)


def _restored(store: Path, record: _Record) -> dict[str, Path | None]:
    """Names that undoing changes, with the kept original."""
    removed = _removed(store, record.names)
    return {
        name: original if lexists(original := store / ORIGINALS / name) else None
        for name in record.names
        if name in removed or _is_linked(store.parent / name)
    }


def _removed(store: Path, names: Iterable[str]) -> set[str]:
    """Names that were removed by hand and whose originals are kept. None where PyTorch was installed again:
    it may be without them."""
    gone, present = set(), False
    for name in names:
        if not lexists(store.parent / name):
            gone.add(name)
        elif not _is_linked(store.parent / name):
            present = True
    return set() if present else {name for name in gone if lexists(store / ORIGINALS / name)}


def _put_back(store: Path, names: Iterable[str]) -> None:
    """Entries that a killed run could not swap in one step, as on NFS, go back to their place."""
    for name in names:
        old = store / f"{name}.new.old"
        if lexists(old) and not lexists(store.parent / name):
            old.rename(store.parent / name)


def _empty(store: Path, names: set[str]) -> None:
    """Removes the entries of the store with these names, and partial ones."""
    for entry in store.iterdir():
        if entry.name.removesuffix(".old").removesuffix(".new") in names:
            _remove(entry)


@contextmanager
def _open_store(folder: Path, *, make: bool) -> Iterator[Path]:
    """The store of `folder` (a torch/lib), which may be missing; with `make` it is created and locked.

    Only `current` may be a link, and only to a folder of the store. What a killed run left is removed by
    name, never followed. Raises DropInError for a store that is or has a link of another program,
    OutputError, OutputBusyError.
    """
    store = folder / STORE
    if make:
        with output_errors(folder), suppress(FileExistsError):
            store.mkdir()
    for entry in store.iterdir() if _is_folder(store) else [store]:
        target = str(entry.readlink()) if entry.is_symlink() else CURRENT
        left = entry.name.endswith((".new", ".old"))
        if not left and ((entry.is_symlink() and entry.name != CURRENT) or "/" in target or target == ".."):
            raise DropInError(
                f"{entry} is a link of another program",
                cause="a drop-in does not create it so; another program or user planted it",
                hint="inspect it, remove it, and reinstall PyTorch",
            )
    with output_lock(store / "dropin") if make else nullcontext():
        yield store


def _load_record(store: Path) -> _Record | None:
    """The store's record, None when there was no drop-in. Raises DropInError for a damaged one, and where
    names are links and the originals are gone."""
    path, record = store / RECORD, None
    try:
        record = _Record.model_validate_json(read_regular(path))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise DropInError(
            f"{path} cannot be used: {error}",
            cause="it was edited, or written by a newer version of this program",
            hint=f"restore the files in {path.parent / ORIGINALS} by hand, or reinstall PyTorch",
        ) from error
    linked = sorted(entry.name for entry in store.parent.iterdir() if _is_linked(entry))
    if linked and not (record and (store / ORIGINALS).is_dir()):
        raise DropInError(
            f"PyTorch's own {', '.join(linked)} cannot be restored: "
            f"{store} does not have {'the originals' if record else 'its record'}",
            cause="it was removed by hand",
            hint=_REINSTALL.format(store.parent),
        )
    return record


def _planned_changes(store: Path, source: UnpackedRelease) -> tuple[str, ...]:
    folder, link = store.parent, store / CURRENT
    current = str(link.readlink()) if link.is_symlink() else ""
    changes = [
        f"{name}: a link to release {source.release}"
        + (", the original is kept" if lexists(folder / name) else "")
        for name in (*source.names, IMAGES)
        if not _is_linked(folder / name)
    ]
    if current != source.release:
        replaced = f" instead of {current}" if current not in {"", ORIGINALS} else ""
        changes.append(f"{CURRENT}: {source.release}{replaced}")
    elif not _is_staged(source, store / source.release):
        changes.append(f"{source.release}: replaced, its files differ from this release's")
    return tuple(changes)


def _is_staged(source: UnpackedRelease, staged: Path) -> bool:
    """True when the staged copy holds exactly the release's library and images."""
    lib, digests = source.prefix / "lib", _sums(staged)
    digests.pop(IMAGE_SUMS, None)
    library = dict.fromkeys(source.names, sha256_file(lib / source.soname))
    return digests == library | {f"{IMAGES}/{name}": digest for name, digest in _sums(lib / IMAGES).items()}


def _stage(source: UnpackedRelease, target: Path) -> None:
    """A flat copy of the release: the library's names next to the images, as in torch/lib."""
    if _is_staged(source, target):
        return
    lib, staged = source.prefix / "lib", _temporary(target.parent, target.name)
    for path in (lib / source.soname, *(lib / IMAGES).rglob("*")):
        if path.is_file():
            make_folders((staged / path.relative_to(lib)).parent)
            shutil.copy(path, staged / path.relative_to(lib))
    for name in {*source.names} - {source.soname}:
        (staged / name).symlink_to(source.soname)
    text = json.dumps(_sums(staged / IMAGES), indent=1, sort_keys=True) + "\n"
    (staged / IMAGE_SUMS).write_text(text, encoding="utf-8")
    _replace(staged, target)


def _sums(folder: Path) -> dict[str, str]:
    """SHA-256 of the files below a folder by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
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
    if names := _reinstalled_images(staged):
        new = _temporary(originals.parent, IMAGES)
        for name in names:
            make_folders((new / name).parent)
            link_or_copy(staged / IMAGES / name, new / name)
        _replace(new, originals)


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
    # copies that root made belong to the owners of their sources, as far as this user can give them
    for source in (path, *(path.rglob("*") if _is_folder(path) else ())):
        made, wanted = partial / source.relative_to(path), source.lstat()
        if (made.lstat().st_uid, made.lstat().st_gid) != (wanted.st_uid, wanted.st_gid):
            with suppress(PermissionError):
                os.chown(made, wanted.st_uid, wanted.st_gid, follow_symlinks=False)
    partial.rename(copy)


def _replace(new: Path, path: Path) -> None:
    """Moves `new` to `path`. rename(2) cannot replace a folder by a link or a link by a folder: these are
    swapped, or moved one after the other (`_put_back`)."""
    if not lexists(path) or not (_is_folder(path) or _is_folder(new)):
        new.replace(path)
    elif swap(new, path):
        _remove(new)
    else:
        old = new.with_name(f"{new.name}.old")
        _remove(old)
        path.rename(old)
        new.rename(path)
        _remove(old)


def _link(store: Path, path: Path, target: str | Path) -> None:
    """Makes `path` a link, in one step."""
    new = _temporary(store, path.name)
    new.symlink_to(target)
    _replace(new, path)


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


def _is_linked(path: Path) -> bool:
    """True for a link of the drop-in."""
    return path.is_symlink() and path.readlink() == Path(STORE, CURRENT, path.name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
