"""Sources that the build generates from the families' functions, and refusals of functions that they cannot
describe."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.errors import OutputError, RulesError
from aotforge.library.operator_functions import EXPORTS, HEADER, TABLES, function_sources, write_sources
from kernels.elementwise.operators import ADD_STRIDED
from tests.support.runtime import ROOT


def changed(folder: Path, file: str, old: str, new: str, family: str = "elementwise") -> Path:
    """A kernels root with one family, changed in one place."""
    shutil.copytree(ROOT / "kernels" / family, folder / family)
    path = folder / family / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder


def test_a_function_becomes_header_tables_and_exports(tmp_path: Path) -> None:
    sources = function_sources(ROOT / "kernels")
    assert set(sources) == {HEADER, TABLES, EXPORTS}
    parameters = (
        "const aotforge_tensor* input, const aotforge_tensor* other, double alpha, const aotforge_tensor* out"
    )
    assert f"AOTFORGE_OPS_API int aotforge_add({parameters}, void* stream);" in sources[HEADER]
    assert sources[EXPORTS].startswith("{ global: aotforge_ops_error; aotforge_add; __tvm_ffi_add; ")
    digest = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(ADD_STRIDED.interface_hash()))
    assert (
        f'{{"add_strided", {{{digest}}}, 8, false, 1, 1, {2**30}, {{255, 255, 0, 255}}, {{0, 0, 0, 0}}, '
        f"k_add_values_2, "
        f"{len(ADD_STRIDED.values)}}}" in sources[TABLES]
    )
    assert '{2, 16, 2, "float16"}, {4, 16, 3, "bfloat16"}' in sources[TABLES]
    folder = write_sources(sources, tmp_path)
    before = (folder / TABLES).stat().st_mtime_ns
    assert (write_sources(sources, tmp_path) / TABLES).stat().st_mtime_ns == before, "unchanged files stay"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "aotforge.library.operator_functions", ROOT / "kernels", tmp_path / "file"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == OutputError.exit_code and done.stderr.startswith("error: ")


def test_families_without_functions_make_no_library(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kernels" / "add", tmp_path / "add")
    assert function_sources(tmp_path) == {}


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("rules.py", 'name="add",\n    summary', 'name="Add",\n    summary',
            "function 'Add' is not a valid name"),
        ("rules.py", 'name="alpha", kind', 'name="other", kind', "there are two of it"),
        ("rules.py", 'kind="output"', 'kind="input"', "the parameters are input, input, number, input"),
        ("rules.py", "dtypes=_DTYPES,", 'dtypes=("fp8e5",),', "dtype 'fp8e5'"),
        ("rules.py", 'operator="add_dense", rank', 'operator="add_dens", rank', "unknown operator add_dens"),
        ("rules.py", 'operator="add_dense", rank=1', 'operator="add_dense", rank=9', "is out of range"),
        ("rules.py", "rank=STRIDED_RANK)", "rank=4)", "value size_4:i32 of operator add_strided has no "
            "meaning"),
        ("operators.py", 'name="n", type="i64"', 'name="count", type="i64"',
            "value count:i64 of operator add_dense"),
        ("operators.py", 'name="alpha", type="i64"', 'name="alpha", type="u64"',
            "value alpha:u64 of operator add_dense"),
    ],
)  # fmt: skip
def test_functions_that_are_not_valid_are_refused(
    tmp_path: Path, file: str, old: str, new: str, words: str
) -> None:
    with pytest.raises(RulesError) as caught:
        function_sources(changed(tmp_path, file, old, new))
    assert words in str(caught.value) and str(tmp_path / "elementwise" / "rules.py") in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name="weight", kind="input", axes=("columns",)', 'name="weight", kind="input", axes=("n",)',
            "parameter 'n' is not a valid name"),
        ('name="weight", kind="input", axes=("columns",)', 'name="weight", kind="input", axes=("weight",)',
            "there are two of it"),
        ('name="weight", kind="input", axes=("columns",)',
            'name="weight", kind="input", axes=("columns", "columns")', "a tensor each of them once"),
        ('name="weight", kind="input", axes=("columns",)',
            'name="weight", kind="input", axes=("a", "b", "c", "d")', "at most 4 core axes"),
        ('name="weight", kind="input", axes=("columns",)', 'name="weight", kind="input", reused=True',
            "weight cannot be the output"),
        ('name="eps", kind="number"', 'name="eps", kind="number", axes=("columns",)', "eps is not a tensor"),
        ('name="eps", kind="number"', 'name="eps", kind="axis"', "value eps:f32 of operator rms_norm_rows"),
        ('name="eps", kind="number"', 'name="eps", kind="axis"), Parameter(name="b", kind="axis"',
            "for functions with one core axis"),
    ],
)  # fmt: skip
def test_core_axes_that_are_not_valid_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(RulesError) as caught:
        function_sources(changed(tmp_path, "rules.py", old, new, family="rms_norm"))
    assert words in str(caught.value)


def test_a_function_of_rows_names_its_core_axis() -> None:
    sources = function_sources(ROOT / "kernels")
    parameters = (
        "const aotforge_tensor* input, const aotforge_tensor* weight, double eps, const aotforge_tensor* out"
    )
    assert f"int aotforge_rms_norm({parameters}, void* stream);" in sources[HEADER]
    assert "input (..., columns), weight (..., columns), out (..., columns): axes" in sources[HEADER]
    assert (
        '{"input", Kind::input, true, false, {0}, 1, nullptr, 0}, {"weight", Kind::input, false, '
        in sources[TABLES]
    )
    assert "{From::core_size, 0, 0}, {From::single, 2, 0}" in sources[TABLES]


def test_a_function_has_an_optional_input_options_and_an_independent_axis() -> None:
    sources = function_sources(ROOT / "kernels")
    tensor = "const aotforge_tensor*"
    parameters = f"{tensor} input, {tensor} weight, {tensor} bias, int activation, {tensor} out"
    assert f"int aotforge_gemm({parameters}, void* stream);" in sources[HEADER]
    assert (
        "weight (..., inner, columns), bias (..., columns) or null, out (..., rows, columns)"
        in sources[HEADER]
    )
    assert "enum { AOTFORGE_GEMM_ACTIVATION_NONE = 0, AOTFORGE_GEMM_ACTIVATION_RELU = 1," in sources[HEADER]
    assert 'k_gemm_activation[] = {"none", "relu", "gelu", "silu"};' in sources[TABLES]
    assert '{"bias", Kind::input, false, true, {2}, 1, nullptr, 0}' in sources[TABLES]
    assert '{"activation", Kind::option, false, false, {}, 0, k_gemm_activation, 4}' in sources[TABLES]
    assert '{"rows", "inner", "columns"}, 3, 1};' in sources[TABLES]
    assert (
        "{From::pointer, 4, 0}, {From::present, 2, 0}, {From::number, 3, 0}, {From::count" in sources[TABLES]
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('ACTIVATIONS = ("none", "relu",', 'ACTIVATIONS = ("none", "none",',
            "the options none, none, gelu, silu are"),
        ('ACTIVATIONS = ("none", "relu",', 'ACTIVATIONS = ("none", "Re Lu",',
            "the options none, Re Lu, gelu, silu are"),
        ('independent=("rows",)', 'independent=("row",)', "independent axis 'row'"),
        ('OptionalInput(name="bias"', 'Parameter(kind="input", name="bias"',
            "value has_bias:i32 of operator gemm_nn"),
    ],
)  # fmt: skip
def test_options_and_independent_axes_that_are_not_valid_are_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(RulesError) as caught:
        function_sources(changed(tmp_path, "rules.py", old, new, family="gemm"))
    assert words in str(caught.value)


def test_two_families_with_one_function_are_refused(tmp_path: Path) -> None:
    changed(tmp_path, "rules.py", 'name="elementwise"', 'name="second"')
    (tmp_path / "elementwise").rename(tmp_path / "second")
    shutil.copytree(ROOT / "kernels" / "elementwise", tmp_path / "elementwise")
    with pytest.raises(RulesError, match="function add is also in"):
        function_sources(tmp_path)
