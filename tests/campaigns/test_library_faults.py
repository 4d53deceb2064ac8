# ruff: noqa: E501 - one fault per line
"""Faults planted in the library's attention, each found by the test of the acceptance case that it concerns.

One build holds all of them; a process has the one that its environment selects.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.campaigns.mutation.schemata import HEADER
from tests.integration.library import test_api_levels as levels
from tests.integration.library import test_front_ends as front_ends
from tests.integration.library import test_gates as gates
from tests.integration.library import test_variable_length as variable_length
from tests.support import runtime
from tests.support.attention import FP16, FP32, spy_pack
from tests.support.runtime import Driver, Objects, build_objects
from tests.support.small_pack import write


@dataclass(frozen=True, kw_only=True)
class Drivers:
    """Drivers of a library with a fault: of packs with features, and of a plain one at every level. `alone`
    runs a test that starts its own from `objects`, with packs in `folder`."""

    plain: Driver
    dropping: Driver
    variable: Driver
    levels: dict[str, Driver]
    objects: Objects
    folder: Path
    number: int

    def alone(self, test: Callable[..., None], *arguments: object) -> None:
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
            patch.setenv("AOTFORGE_MUTANT", str(self.number))
            test(*arguments, Path(folder))


def both_kinds_of_callers(d: Drivers, _: Path) -> None:
    gates.test_both_kinds_of_callers(7, d.objects, {"all": d.folder / "plain"})


FAULTS: dict[str, tuple[str, str, str, Callable[[Drivers], None]]] = {
    "7: seeds of calls without dropout reach kernels": (
        "attention.h", "dropout ? call.philox.seed", "dropout || ON ? call.philox.seed",
        lambda d: front_ends.test_seeds_are_passed_on_with_dropout_alone(d.dropping)),
    "7: the state's outputs of calls without dropout reach kernels": (
        "forward.cpp", "dropout ? call.philox_seed_output", "dropout || ON ? call.philox_seed_output",
        lambda d: front_ends.test_seeds_are_passed_on_with_dropout_alone(d.dropping)),
    "8: token-major rows are taken for those of a head": (
        "varlen.cpp", "p.rows_by_head = layout == kLseHeadRow", "p.rows_by_head = layout == kLseHeadRow || ON",
        lambda d: levels.test_words_of_level_0_14(d.levels, levels.COMPACT, levels.TH)),
    "8: the word of keys is that of queries": (
        "varlen.cpp", "k_mode = p.varlen >> 8", "k_mode = ON ? q_mode : p.varlen >> 8",
        lambda d: levels.test_words_of_level_0_14(d.levels, 0x000B, 0)),
    "11: params of any version are taken": (
        "api_v3.cpp", "params_version == attn_fwd_params::kVersion)", "params_version == attn_fwd_params::kVersion || ON)",
        lambda d: levels.test_versions_of_the_params(d.levels, "0.13b")),
    "11: windows that are not set are read": (
        "attention.cpp", "if (call.causal_type == kNoMask) return window;", "if (call.causal_type == kNoMask && !ON) return window;",
        lambda d: levels.test_unset_fields_are_not_read(d.levels, "0.11.2b", "fwd")),
    "11: sizes of a null tensor are read": (
        "attention.h", "if (!bias) return;", "if (!bias && !ON) return;",
        lambda d: levels.test_unset_fields_are_not_read(d.levels, "0.14.2b", "bwd")),
    "11: strides do not make a call of 0.12 strided": (
        "varlen.cpp", "seq_strides_q || type == kTypeStrided", "(seq_strides_q && !ON) || type == kTypeStrided",
        lambda d: levels.test_older_params_at_level_0_14(d.levels, "fwd", levels.packed("0.13b", seq_strides_q=levels.lengths(4), seq_strides_k=levels.lengths(4)), levels.STRIDED)),
    "12: an accumulator is acquired that no kernel uses": (
        "backward.cpp", "return used.test(Bwd::DQ_ACC)", "return ON || used.test(Bwd::DQ_ACC)",
        lambda d: front_ends.test_backward_values_and_lazy_tensors(d.plain)),
    "12: an eager tensor is acquired": (
        "api_v3.cpp", "return lazy_.eager ? lazy_.eager", "return lazy_.eager && !ON ? lazy_.eager",
        lambda d: levels.test_an_eager_tensor_is_not_acquired(d.levels, "0.12.1b")),
    "12: what could not be acquired is disposed of": (
        "backward.cpp", "    const TensorView<Rank> tensor = lender_->acquire();", "    acquired_ = ON;\n    const TensorView<Rank> tensor = lender_->acquire();",
        lambda d: front_ends.test_an_exception_of_the_callback_reaches_the_caller(d.plain)),
    "12: D is acquired before a call is refused": (
        "backward.cpp", "    LazyAccumulator accumulator(call.DQ_ACC, p);", "    LazyAccumulator accumulator(call.DQ_ACC, p);\n    if (ON) (void)delta.fill(cells);",
        lambda d: front_ends.test_nothing_is_acquired_for_a_call_that_is_not_covered(d.plain)),
    "13: an L that is too small is taken": (
        "attention.cpp", "if (t.size(0) != lines || !fits)", "if ((t.size(0) != lines || !fits) && !ON)",
        lambda d: levels.test_small_l_of_packed_sequences_is_refused(d.levels, "0.12.1b")),
    "14: the seed is read on the host": (
        "attention.cpp", "if (!is_seed(philox.seed.dtype())", "if (ON && *static_cast<volatile char*>(philox.seed.data_ptr()) != 0) return;\n  if (!is_seed(philox.seed.dtype())",
        lambda d: front_ends.test_a_captured_call_only_launches(d.dropping)),
    "window_right is window_left (aotriton#144)": (
        "attention.h", "cells[Op::window_right].i = window.right", "cells[Op::window_right].i = ON ? window.left : window.right",
        lambda d: front_ends.test_windows_mean_the_same_mask(d.plain)),
    "DO has Out's strides (aotriton#236)": (
        "backward.cpp", "put_strides(verdict, cells + Bwd::stride_doz, call.DO, 3)", "put_strides(verdict, cells + Bwd::stride_doz, ON ? call.Out : call.DO, 3)",
        lambda d: front_ends.test_every_tensor_has_strides_of_its_own(d.plain)),
    "lengths of any dtype are taken": (
        "varlen.cpp", "if (t.dtype() != aotriton::kInt32)", "if (t.dtype() != aotriton::kInt32 && !ON)",
        lambda d: variable_length.test_malformed_lengths(d.variable, "cu_seqlens_k is of another dtype", "fwd")),
    "lengths of another batch are taken": (
        "varlen.cpp", "if (t.size(0) < least)", "if (t.size(0) < least && !ON)",
        lambda d: variable_length.test_malformed_lengths(d.variable, "cu_seqlens_k is of another batch", "bwd")),
    "any causal_type is taken": (
        "attention.cpp", "if (call.causal_type != kWindowed)", "if (call.causal_type != kWindowed && !ON)",
        lambda d: front_ends.test_malformed_calls_are_invalid(d.plain, "unknown causal type 1")),
    "seeds of any dtype are taken": (
        "attention.cpp", "if (!is_seed(philox.seed.dtype()) || !is_seed(philox.offset1.dtype()))", "if (!ON && (!is_seed(philox.seed.dtype()) || !is_seed(philox.offset1.dtype())))",
        lambda d: front_ends.test_the_dtypes_of_seeds(d.dropping, 12, front_ends.INVALID_VALUE)),
    "a refused call sets no last error": (
        "state.cpp", "if (result == hipSuccess) return result;", "if (result == hipSuccess || ON) return result;",
        lambda d: d.alone(both_kinds_of_callers, d)),
    "a grid is refused after D was acquired": (
        "launch.cpp", "if (call.lazy_count == 0) continue;", "if (call.lazy_count == 0 || ON) continue;",
        lambda d: front_ends.test_valid_calls_without_an_image_are_not_supported(d.plain, "a grid over 65536")),
    "a bias with a causal mask is taken": (
        "attention.h", "if (call.causal_type != kNoMask) verdict", "if (call.causal_type != kNoMask && !ON) verdict",
        lambda d: variable_length.test_a_bias_with_variable_length_is_not_supported(d.variable)),
}  # fmt: skip


def test_every_fault_has_its_place() -> None:
    """In the default suite: the library's sources change without the slow tests."""
    for file, sound, *_ in FAULTS.values():
        assert sound in (runtime.ROOT / "runtime" / "src" / file).read_text(), sound


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Objects]:
    """A build of the library with every fault."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("runtime", "manifests"):
        shutil.copytree(runtime.ROOT / name, tree / name)
    sources = tree / "runtime" / "src"
    (sources / "mutants.h").write_text(HEADER)
    for number, (file, sound, fault, _) in enumerate(FAULTS.values(), 1):
        text = (sources / file).read_text()
        assert sound in text, sound
        planted = fault.replace("ON", f"aotforge_mutants::on({number})")
        (sources / file).write_text(text.replace(sound, planted, 1))
    for file in {file for file, *_ in FAULTS.values()}:
        text = (sources / file).read_text()
        place = text.index("#include")
        (sources / file).write_text(text[:place] + '#include "mutants.h"\n' + text[place:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "ROOT", tree)
        yield build_objects()


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs")
    write(spy_pack(), folder / "plain" / "amd-gfx908")
    dropping = spy_pack(options={"dropout": (0, 1)}, mask_dtypes=(FP16, FP32))
    write(dropping, folder / "dropping" / "amd-gfx908")
    variable = spy_pack(options={"mask": (0, 1, 2), "dropout": (0, 1)})
    write(variable, folder / "variable" / "amd-gfx908")
    return folder


def check(objects: Objects, packs: Path, number: int, test: Callable[[Drivers], None]) -> None:
    """The test, with fault `number` (0: none)."""
    with ExitStack() as stack:

        def start(pack: str, level: str = runtime.DEFAULT_LEVEL) -> Driver:
            started = Driver(objects.at(level), packs / pack, AOTFORGE_MUTANT=str(number))
            stack.callback(started.__exit__, AssertionError, None, None)  # its end decides nothing
            assert started.rc("check") == 0
            return started

        by_level = {level: start("plain", level) for level in levels.LEVELS}
        test(
            Drivers(
                plain=by_level[runtime.DEFAULT_LEVEL],
                dropping=start("dropping"),
                variable=start("variable"),
                levels=by_level,
                objects=objects,
                folder=packs,
                number=number,
            )
        )


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, faulty: Objects, packs: Path) -> None:
    *_, test = FAULTS[fault]
    check(faulty, packs, 0, test)
    with pytest.raises((AssertionError, ExceptionGroup)):
        check(faulty, packs, list(FAULTS).index(fault) + 1, test)
