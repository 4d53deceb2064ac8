"""Parameters of kernels: which are constexpr, and their defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import RulesError
from aotforge.plan.closure import SourceTree
from aotforge.plan.context import FunctionSignature, read_signature
from tests.support.families import FAKE_TOOLCHAIN, HEADER, KERNEL, plan_of, write_family


def signature(folder: Path, parameters: str) -> FunctionSignature:
    (folder / "k.py").write_text(f"{HEADER}\n@triton.jit\ndef kernel({parameters}):\n    pass\n")
    return read_signature(SourceTree(root=folder), "k.py", "kernel")


def test_every_kind_of_parameter(tmp_path: Path) -> None:
    found = signature(
        tmp_path,
        "x, y, /, n, m=5, A: tl.constexpr = 4, B: 'tl.constexpr' = -3, *, C: tl.constexpr, d, "
        "E: constexpr = True",
    )
    assert found.parameters == ("x", "y", "n", "m", "A", "B", "C", "d", "E")
    assert found.constexpr == {"A", "B", "C", "E"}
    assert found.defaults == {"m": 5, "A": 4, "B": -3, "E": True}


@pytest.mark.parametrize(
    ("default", "wanted"),
    [
        ("'text'", "text"), ("False", False), ("0", 0),
        ("2**3", None), ("0.5", None), ("None", None), ("LIMIT", None),
    ],
)  # fmt: skip
def test_defaults_are_integers_strings_and_booleans(
    tmp_path: Path, default: str, wanted: int | str | None
) -> None:
    found = signature(tmp_path, f"A: tl.constexpr = {default}, B: tl.constexpr = 1")
    # as text: False is equal to 0
    assert str(found.defaults) == str({"B": 1} if wanted is None else {"A": wanted, "B": 1})


@pytest.mark.parametrize("parameters", ["*x", "**x", "x, *rest, A: tl.constexpr"])
def test_parameters_without_names_are_refused(tmp_path: Path, parameters: str) -> None:
    with pytest.raises(RulesError, match=r"k\.py:\d+: kernel takes \* or \*\* parameters"):
        signature(tmp_path, parameters)


def constants(root: Path, parameters: str) -> tuple[str, dict[str, object]]:
    """Key and constants of the only job of a kernel whose setting gives BLOCK = 64."""
    write_family(root, text=KERNEL.replace("BLOCK: tl.constexpr", parameters))
    (job,) = plan_of(root, compiler=FAKE_TOOLCHAIN).jobs
    return job.key, dict(job.constants)


def test_a_default_is_the_value_that_no_setting_gives(tmp_path: Path) -> None:
    key, found = constants(tmp_path, "BLOCK: tl.constexpr = 32, PAD: tl.constexpr = -3")
    assert found == {"BLOCK": 64, "PAD": -3}
    other, found = constants(tmp_path, "BLOCK: tl.constexpr = 32, PAD: tl.constexpr = 4")
    assert found == {"BLOCK": 64, "PAD": 4} and other != key
    with pytest.raises(RulesError, match="constexpr PAD of kernel has no value"):
        constants(tmp_path, "BLOCK: tl.constexpr = 32, PAD: tl.constexpr = 2 + 2")
