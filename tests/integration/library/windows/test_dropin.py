"""dropin.exe under Wine: a release in an installed PyTorch, taken out again, and completed where an earlier
run was killed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.windows import DLL, WindowsObjects, run
from tests.support.wine import Wine, windows_path

pytestmark = pytest.mark.slow  # Wine
ORIGINAL = b"PyTorch's own library"
CONFIG = "#define AOTRITON_VERSION_MAJOR {}\n#define AOTRITON_VERSION_MINOR {}\n"
Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def release(windows: WindowsObjects, pack: Path, tmp_path: Path) -> Path:
    """What is in the zip file, as far as the program needs it."""
    folder = tmp_path / "aotriton ä"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(windows.runtime.prefix / "bin" / "dropin.exe", folder / "bin")
    windows.place(folder / "lib")
    shutil.copytree(pack, folder / "lib" / "aotriton.images")
    return folder


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """torch/lib with images of its own for the same arch, in an environment."""
    lib = tmp_path / "my venv" / "Lib" / "site-packages" / "torch" / "lib"
    own = lib / "aotriton.images" / "amd-gfx908" / "flash"
    own.mkdir(parents=True)
    (own / "attn_fwd.zip").write_bytes(b"PyTorch's")
    (lib / DLL).write_bytes(ORIGINAL)
    (lib / "torch_hip.dll").touch()
    config = lib.parent / "include" / "aotriton" / "config.h"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(0, 11))
    return lib


def drop(wine: Wine, release: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(wine, release / "bin" / "dropin.exe", *words, hip=None)


def dropped_in(torch: Path, release: Path) -> bool:
    """Whether library and images of the release are PyTorch's, and nothing of an earlier run is left."""
    (own,) = (path for path in (torch / "aotriton.images").iterdir() if path.name.startswith("aotforge-"))
    return (
        (torch / DLL).read_bytes() == (release / "lib" / DLL).read_bytes()
        and tree(own) == tree(release / "lib" / "aotriton.images" / "amd-gfx908")
        and tree(torch / "aotforge-dropin") == {"original.dll": ORIGINAL}
    )


def test_in_and_out_again(wine: Wine, release: Path, torch: Path) -> None:
    before = tree(torch)
    done = drop(wine, release, windows_path(torch.parents[3]))  # the environment
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (
        dropped_in(torch, release)
        and tree(torch).items() >= {name: data for name, data in before.items() if name != DLL}.items()
    )
    assert drop(wine, release, windows_path(torch)).returncode == 0  # again
    assert dropped_in(torch, release)
    done = drop(wine, release, "--undo", windows_path(torch))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert tree(torch) == before and not (torch / "aotforge-dropin").exists()
    assert [path.name for path in (torch / "aotriton.images").iterdir()] == ["amd-gfx908"]
    done = drop(wine, release, "--undo", windows_path(torch))
    assert done.returncode == 1 and "nothing was dropped into" in done.stderr


def test_what_a_killed_run_leaves(wine: Wine, release: Path, torch: Path) -> None:
    before = tree(torch)
    images, store = torch / "aotriton.images", torch / "aotforge-dropin"
    # before the library was replaced: PyTorch's library, and images that it ignores
    (images / "aotforge-20260101000000000-amd-gfx908").mkdir()
    (store / "pack").mkdir(parents=True)
    (store / "pack" / "dispatch.aotd").write_bytes(b"half of")
    (store / "next.dll").write_bytes(b"half of")
    (store / "original.dll").write_bytes(ORIGINAL)
    shutil.copytree(torch, torch.parent / "copy")
    assert drop(wine, release, windows_path(torch)).returncode == 0
    assert not (store / "pack").exists() and dropped_in(torch, release)
    # after it: two sets of images
    shutil.copytree(release / "lib" / "aotriton.images" / "amd-gfx908", images / "aotforge-2-amd-gfx908")
    assert drop(wine, release, windows_path(torch)).returncode == 0
    assert dropped_in(torch, release)
    shutil.rmtree(torch)
    (torch.parent / "copy").rename(torch)
    assert drop(wine, release, "--undo", windows_path(torch)).returncode == 0
    assert tree(torch) == before


def test_pytorch_was_installed_again(wine: Wine, release: Path, torch: Path) -> None:
    """Its new library is the original."""
    assert drop(wine, release, windows_path(torch)).returncode == 0
    (torch / DLL).write_bytes(b"a newer one")
    done = drop(wine, release, "--undo", windows_path(torch))
    assert done.returncode == 0 and (torch / DLL).read_bytes() == b"a newer one"
    assert drop(wine, release, windows_path(torch)).returncode == 0
    (torch / DLL).write_bytes(ORIGINAL)
    assert drop(wine, release, windows_path(torch)).returncode == 0 and dropped_in(torch, release)


def test_refusals_change_nothing(wine: Wine, release: Path, torch: Path) -> None:
    before, config = tree(torch), torch.parent / "include" / "aotriton" / "config.h"
    config.write_text(CONFIG.format(0, 13))
    done = drop(wine, release, windows_path(torch))
    assert done.returncode == 1 and "needs AOTriton 0.13, and this library is 0.11" in done.stderr
    config.unlink()
    done = drop(wine, release, windows_path(torch))
    assert done.returncode == 1 and "config.h, which states it, is missing" in done.stderr
    config.write_text(CONFIG.format(0, 11))
    shutil.rmtree(release / "lib" / "aotriton.images")
    done = drop(wine, release, windows_path(torch))
    assert done.returncode == 1 and "has no images" in done.stderr
    assert drop(wine, release, "--undo", windows_path(torch)).returncode == 0
    assert tree(torch) == before
    done = drop(wine, release, windows_path(torch.parent / "include"))
    assert done.returncode == 1 and "no PyTorch for ROCm" in done.stderr
