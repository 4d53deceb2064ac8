"""The matrix check of a drop-in, for a PyTorch and the name that it loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.deliver.dropin.inputs import TorchLib, UnpackedRelease
from aotforge.deliver.dropin.install_dropin import matrix_check
from aotforge.errors import DropInError

ROOT = Path(__file__).resolve().parents[4]
SOURCE = UnpackedRelease(
    release="0.11.2b-r1", prefix=Path("/p"), soname="libaotriton_v2.so.0.11.2", packs=("amd-gfx908",),
    names=("libaotriton_v2.so.0.11.0", "libaotriton_v2.so.0.11.1"),
)  # fmt: skip


def torch_lib(version: str, *needed: str) -> TorchLib:
    return TorchLib(
        folder=Path("/torch/lib"),
        version=version,
        needed=tuple(f"libaotriton_v2.so.{name}" for name in needed),
    )


@pytest.mark.parametrize(
    ("version", "name", "fork"),
    [
        ("2.9.1", "0.11.0", False),
        ("2.10.0", "0.11.1", False),
        ("2.11.0", "0.11.2", False),
        ("2.9.0", "0.11.1", True),
    ],
)
def test_names_of_the_same_feature_release(version: str, name: str, fork: bool) -> None:
    matrix_check(ROOT, fork=fork)(torch_lib(version, name), SOURCE)


@pytest.mark.parametrize(
    ("version", "name", "words"),
    [
        ("2.7.1", "0.9.2", "must not be given to PyTorch 2.7.1"),
        ("2.13.0", "0.12.0", "must not be given to PyTorch 2.13.0"),
        ("2.9.1", "0.10.0", "loads libaotriton_v2.so.0.10.0"),
        ("9.9.0", "0.11.0", "no statement about PyTorch 9.9.0"),
        ("", "0.11.0", "the version of PyTorch in /torch/lib is unknown"),
    ],
)
def test_what_is_refused(version: str, name: str, words: str) -> None:
    with pytest.raises(DropInError, match=words) as caught:
        matrix_check(ROOT, fork=False)(torch_lib(version, name), SOURCE)
    assert caught.value.cause and caught.value.hint


def test_the_matrix_is_read_at_the_releases_level() -> None:
    newer = replace(
        SOURCE, release="0.12.1b-r1", soname="libaotriton_v2.so.0.12.1", names=("libaotriton_v2.so.0.12.0",)
    )
    matrix_check(ROOT, fork=False)(torch_lib("2.13.0", "0.12.0"), newer)
    with pytest.raises(DropInError, match=r"must not be given to PyTorch 2\.11\.0"):
        matrix_check(ROOT, fork=False)(torch_lib("2.11.0", "0.11.2"), newer)


def test_one_wrong_name_is_enough() -> None:
    with pytest.raises(DropInError, match=r"0\.9\.2"):
        matrix_check(ROOT, fork=False)(torch_lib("2.11.0", "0.11.2", "0.9.2"), SOURCE)
