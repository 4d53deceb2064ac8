"""aotforge_flash without a library: its table of operators, the shim, and where it looks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from aotforge.rules import DTYPE_NUMBERS
from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from kernels.flash_paged.operators import PAGED_ATTN, RESHAPE_AND_CACHE

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.torch


def test_operators_are_those_of_the_kernels() -> None:
    from aotforge_flash.operators import OPERATORS

    assert OPERATORS.keys() == {one.name for one in (ATTN_FWD, ATTN_BWD, PAGED_ATTN, RESHAPE_AND_CACHE)}
    for one in (ATTN_FWD, ATTN_BWD, PAGED_ATTN, RESHAPE_AND_CACHE):
        own = [(name, kind) for kind, names in OPERATORS[one.name] for name in names.split()]
        assert own == [(value.name, value.type) for value in one.values]


def test_numbers_of_element_types() -> None:
    from aotforge_flash.checks import CACHES

    names = ("fp16", "bf16", "i8", "fp8e5", "fp8e4nv")
    types = (torch.float16, torch.bfloat16, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn)
    assert {types[at]: DTYPE_NUMBERS[name] for at, name in enumerate(names)} == CACHES


@pytest.fixture
def without_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flash_attn", "flash_attn.flash_attn_interface"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("without_flash_attn")
def test_the_shim_is_off_until_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import aotforge_flash
    from aotforge_flash import shim

    with pytest.raises(ImportError):
        importlib.import_module("flash_attn")
    with monkeypatch.context() as scope:
        scope.setattr(sys, "modules", dict(sys.modules))
        shim.install()
        shim.install()
        made = importlib.import_module("flash_attn.flash_attn_interface")
        assert made.flash_attn_func is aotforge_flash.flash_attn_func


@pytest.mark.usefixtures("without_flash_attn")
def test_the_shim_refuses_beside_flash_attn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotforge_flash import shim

    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="flash_attn is installed, and is not replaced"):
        shim.install()
    assert "flash_attn" not in sys.modules


def test_the_library_is_that_of_the_other_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotforge_flash import LaunchError
    from aotforge_flash.library import _installed

    with pytest.raises(LaunchError, match="aotforge-attention is not installed: pip install"):
        _installed()
    folder = tmp_path / "aotforge_attention"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LaunchError, match="has no libaotriton_v2"):
        _installed()
    (folder / "lib" / "libaotriton_v2.so.0.11.0").write_bytes(b"an alias")
    (folder / "lib" / "libaotriton_v2.so.0.11.2").write_bytes(b"the library, larger")
    assert _installed().name == "libaotriton_v2.so.0.11.2"
