"""Results of an image's launches: the worst one of each output is shown; what the virtual GPU lacks is not a
fault."""

from __future__ import annotations

from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from aotforge.verify import check_image
from aotforge.verify.check_image import _LISTED, _PRINTED, Results
from aotforge.verify.compare import Bounded, Comparison, Exact, Expected
from aotforge.verify.executors import EmulatedImage
from aotforge.verify.interpreter.dispatch import Launch
from aotforge.verify.invocation import Case, ImageRunner, Invocation
from aotforge.verify.tensors import Guarded, Layout
from vgpu.emulator.hooks import PrintedText


def compared(error: float, *, element: float = 0.0, tile: float = 0.0) -> Comparison:
    one = np.zeros((1, 1))
    return Comparison(
        actual=one, value=one, elements=one + element, error=error, allowed=2.0, tiles=one + tile
    )  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_largest_error_of_all_launches_is_shown_with_its_case(order: tuple[int, ...]) -> None:
    launches = [compared(1.0, element=0.5), compared(3.0, tile=0.25), compared(2.0, element=0.25, tile=0.75)]
    results = Results()
    for number in order:
        results.add("out", launches[number], f"case {number}")
    (found,) = results.outputs.values()
    assert (found.tensor, found.error, found.at) == (1.5, 3.0, "case 1")
    assert (found.element, found.tile) == (0.5, 0.75)


def test_an_expectation_of_zeros_shows_nothing() -> None:
    def expected(*values: float) -> Expected:
        value = np.array([values])
        return Expected(
            bounded=Bounded(value=value, error=np.zeros_like(value)), same_precision=[value], dtype="fp32"
        )

    assert not expected(0.0, 0.0).is_informative and not expected(np.inf, 0.0).is_informative
    assert expected(1.0, 2.0).is_informative and expected(np.inf, 0.0, 1.0).is_informative
    assert not Exact(value=np.zeros(3)).is_informative and Exact(value=np.ones(3)).is_informative


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-12])
def test_a_scaled_tile_is_found_whatever_the_size_of_its_numbers(size: float) -> None:
    value = np.random.default_rng(1).standard_normal((1, 1, 16, 16)) * size
    want = Expected(
        bounded=Bounded(value=value, error=np.abs(value)), same_precision=[value * (1 + 1e-6)], dtype="fp32"
    )
    assert want.compare(value * 1.2).tile > 1 >= want.compare(value).tile


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8", "i16", "i32", "i64"])
def test_canaries_of_integers(dtype: str) -> None:
    """They differ from element to element, and those of outputs from those of inputs."""
    out, given = (
        Guarded((4, 4), dtype, Layout(), values)  # type: ignore[arg-type]
        for values in (None, np.zeros((4, 4)))
    )
    assert len(out.storage) == len(given.storage) == 64 + 16 + 64
    assert len(np.unique(out.storage)) > 20
    assert not np.array_equal(out.storage[:64], given.storage[:64])


def test_failures_of_both_schedules_are_listed_once_and_the_others_counted() -> None:
    found = Results()
    for number in range(_LISTED + 3):
        error = ExecutionError(f"case {number} reads outside its buffers")
        found.add_error(error)
        found.add_error(error, EmulatedImage.runs[1])
    lines = found.failure.splitlines()
    assert lines[:_LISTED] == [f"case {number} reads outside its buffers" for number in range(_LISTED)]
    assert lines[_LISTED:] == ["and 3 more failures"]


def test_the_first_printed_texts_are_kept_and_all_are_counted() -> None:
    found = Results()
    for number in range(_PRINTED + 2):
        found.add_print(PrintedText(group=(number, 0, 0), wave=1, lane=2, text=f"x\ny {number}\n"), "one")
        found.add_print(PrintedText(group=(0, 0, 0), wave=0, lane=0, text="assert", error=True), "one")
    assert found.texts == _PRINTED + 2
    assert found.printed == [
        f"one: program ({number}, 0, 0), wave 1, lane 2: x\n    y {number}" for number in range(_PRINTED)
    ]


@pytest.mark.parametrize(
    ("serves", "executed"),
    [
        ({"small", "large", "larger"}, ["small"]),
        ({"large", "larger"}, ["large", "larger"]),
        ({"larger"}, ["larger"]),
    ],
)
def test_marked_cases_are_for_images_that_no_other_case_reaches(
    monkeypatch: pytest.MonkeyPatch, serves: set[str], executed: list[str]
) -> None:
    made: list[str] = []

    def case(name: str) -> Case:
        def make() -> Invocation:
            made.append(name)
            return Invocation(values={name: 0}, inputs={}, outputs={}, expected=dict)

        return Case(name=name, make=make, unless_reached=name != "small")

    class Recorder(ImageRunner):
        runs = ("",)

        def run(self, *_: object, **__: object) -> Counter[str]:
            return Counter(v_mov_b32=1)

    monkeypatch.setattr(
        check_image,
        "launch_of",
        lambda _, values: Launch(grid=(1, 1, 1), arguments={}) if serves & set(values) else None,
    )
    results = Results()
    check_image.check_use(Mock(), Recorder(), [case(name) for name in ("small", "large", "larger")], results)
    assert results.cases == executed and not results.failures
    assert made == (["small"] if "small" in serves else ["small", "large", "larger"])


@pytest.mark.parametrize("cuts", [False, True])
def test_cut_off_sums_are_expected_of_hardware_that_cuts_them_off(
    monkeypatch: pytest.MonkeyPatch, cuts: bool
) -> None:
    value = np.linspace(1.0, 2.0, 16).reshape(4, 4)
    expected = Expected(
        bounded=Bounded(value=value, error=np.full(value.shape, 1e-3)),
        same_precision=[value + 1e-6],
        dtype="fp32",
        cut_off=lambda: [value - 1e-5],
    )
    out, number = Guarded((4, 4), "fp32", Layout()), Guarded((), "i32", Layout())

    class Device(ImageRunner):
        runs = ("",)
        truncates_sums = cuts

        def run(self, *_: object, **__: object) -> Counter[str]:
            out.bits()[...] = (value - 1.5e-5).astype(np.float32).view(np.uint32)
            number.bits()[...] = 7
            return Counter(v_mov_b32=1)

    monkeypatch.setattr(check_image, "launch_of", lambda *_: Launch(grid=(1, 1, 1), arguments={}))
    results = Results()
    one = Case(
        name="sums",
        make=lambda: Invocation(
            values={},
            inputs={},
            outputs={"out": out, "number": number},
            expected=lambda: {"out": expected, "number": Exact(value=np.array(7))},
        ),
    )
    check_image.check_use(Mock(), Device(), [one], results)
    assert ("the same precision" in results.failure) != cuts and len(results.failures) == (not cuts)
