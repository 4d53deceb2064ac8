"""Which PyTorch a release serves: the feature release of the names that its libraries need decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.deliver.dropin.apply import drop_in, undo
from aotforge.deliver.dropin.inputs import UnpackedRelease, read_torch_lib
from aotforge.errors import DropInError
from aotforge.formats.api_level import library_name
from aotforge.formats.library_alias import library_alias
from tests.support.torch_lib import make_release, make_torch, tree

LEVELS = {
    "0.11.2b": ("0.11.0", "0.11.1", "0.11.2", "0.11.9"),
    "0.12.1b": ("0.12.0", "0.12.1", "0.12.50"),
    "0.13b": ("0.13.0", "0.13.1", "0.13.50"),
    "0.14.2b": ("0.14.0", "0.14.1", "0.14.2", "0.14.50"),
}
"""Versions in the names that wheels need: releases, AMD's previews, and one that does not exist yet."""


def release(folder: Path, level: str) -> UnpackedRelease:
    made = make_release(folder, f"{level}-r1")
    lib, soname = made.prefix / "lib", library_name(level)
    content = (lib / made.soname).read_text()
    for path in lib.glob("libaotriton_v2.so*"):
        path.unlink()
    (lib / soname).write_text(content)
    return replace(made, soname=soname, names=(soname,))


@pytest.mark.parametrize(("level", "version"), [(level, v) for level, all_ in LEVELS.items() for v in all_])
def test_every_name_of_the_feature_release_is_served(level: str, version: str, tmp_path: Path) -> None:
    name = f"libaotriton_v2.so.{version}"
    lib = make_torch(tmp_path).folder
    (lib / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", name))
    (lib.parent / "version.py").write_text("__version__ = '2.11.0+rocm7.14.0'\n")  # whatever AMD's fork pins
    torch = read_torch_lib(lib)
    assert torch.needed == (name,)
    (torch.folder / name).write_text("library original")
    before = tree(torch.folder)
    drop_in(release(tmp_path, level), torch)
    assert (torch.folder / name).read_text() == f"library {level}-r1"
    assert not drop_in(release(tmp_path / "again", level), torch).changes
    undo(torch.folder)
    assert tree(torch.folder) == before


@pytest.mark.parametrize(
    ("level", "versions"),
    [("0.11.2b", ("0.10.0",)), ("0.11.2b", ("0.12.50",)), ("0.13b", ("0.13.0", "0.9.2"))],
)
def test_names_of_others_are_refused(level: str, versions: tuple[str, ...], tmp_path: Path) -> None:
    torch = replace(make_torch(tmp_path), needed=tuple(f"libaotriton_v2.so.{v}" for v in versions))
    before = tree(torch.folder)
    with pytest.raises(DropInError, match=rf"needs libaotriton_v2\.so\.{versions[-1]}, and release") as error:
        drop_in(release(tmp_path, level), torch)
    feature = versions[-1].rpartition(".")[0]
    assert error.value.cause == f"{feature} is another feature release of AOTriton, whose interface differs"
    assert tree(torch.folder) == before
