"""A torch/lib and unpacked releases of small text files, and the state that a loader would find."""

from __future__ import annotations

from pathlib import Path

from aotforge.deliver.dropin.inputs import TorchLib, UnpackedRelease

NEW = "libaotriton_v2.so.0.11.2"
OLD = "libaotriton_v2.so.0.11.0"
NAMES = ("libaotriton_v2.so", OLD, "libaotriton_v2.so.0.11.1", NEW)


def make_release(folder: Path, release: str = "0.11.2b-r1") -> UnpackedRelease:
    lib = folder / release / "lib"
    pack = lib / "aotriton.images" / "amd-gfx908"
    pack.mkdir(parents=True)
    (lib / NEW).write_text(f"library {release}")
    for name in NAMES:
        if name != NEW:
            (lib / name).symlink_to(NEW)
    (pack / "__signature__").write_text(f"images {release}")
    return UnpackedRelease(release=release, prefix=lib.parent, soname=NEW, names=NAMES, packs=("amd-gfx908",))


def make_torch(folder: Path) -> TorchLib:
    """As copy_directory leaves it: a copy of the library per name, and the official packs."""
    lib = folder / "torch" / "lib"
    (lib / "aotriton.images" / "amd-gfx90a").mkdir(parents=True)
    (lib / "aotriton.images" / "amd-gfx90a" / "__signature__").write_text("images original")
    for name in ("libaotriton_v2.so", OLD):
        (lib / name).write_text("library original")
    (lib / OLD).chmod(0o755)
    (lib / "libtorch_hip.so").write_text("torch")
    return TorchLib(folder=lib, version="2.9.0", needed=(OLD,))


def state(torch: TorchLib) -> str:
    """Which library the loader finds, once images beside it are seen to be of the same origin."""
    library = (torch.folder / OLD).read_text().split()[1]
    images = [
        path.read_text().split()[1] for path in (torch.folder / "aotriton.images").rglob("__signature__")
    ]
    assert images == [library]
    return library


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): f"-> {path.readlink()}"
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else f"{path.stat().st_mode & 0o777:o} {path.read_text(errors='backslashreplace')}"
        for path in sorted(folder.rglob("*"))
    }
