"""attn_fwd and attn_bwd: the values that reach kernels, and every refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.flash.operators import ATTN_BWD, ATTN_DROPOUT_MASK, ATTN_FWD
from tests.support.attention import BF16, FP16, FP32, Problem, Tensor, contiguous, decode, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import write

INVALID_VALUE, INVALID_SYMBOL, NOT_SUPPORTED = 1, 13, 801
TOP_LEFT, BOTTOM_RIGHT = -2147483647, -2147483646


@pytest.fixture(scope="module")
def driver(objects: Objects, spy_images: Path) -> Iterator[Driver]:
    with Driver(objects, spy_images) as started:
        assert started.rc("check") == 0  # the library has found HIP, so the double can be used
        yield started


def forward(driver: Driver, problem: Problem) -> dict[str, Any]:
    driver.send("clear")
    assert driver.rc(problem.line("fwd")) == 0
    return decode(driver.launches()[-1], ATTN_FWD)


def test_forward_values(driver: Driver) -> None:
    problem = Problem(extra={"philox_offset2": 7, "causal_type": 3, "window_left": 48, "window_right": 0})
    values = forward(driver, problem)
    fields = problem.fields(backward=False)
    for name in ("Q", "K", "V", "Out", "L"):
        assert values[name] == fields[name].base
    assert values["B"] == values["seqinfo_q0"] == values["seqinfo_k0"] == values["varlen_bits"] == 0
    assert [values[f"stride_q{x}"] for x in "zhm"] == [4 * 48 * 64, 48 * 64, 64]
    assert [values[f"stride_k{x}"] for x in "zhn"] == [2 * 64 * 64, 64 * 64, 64]
    assert [values[f"stride_v{x}"] for x in "zhn"] == [2 * 64 * 64, 64 * 64, 64]
    assert [values[f"stride_o{x}"] for x in "zhm"] == [4 * 48 * 64, 48 * 64, 64]
    assert [values[f"stride_l{x}"] for x in "zhm"] == [4 * 48, 48, 1]
    shape = (
        *("batch", "num_head_q", "num_head_k", "group", "seqlen_q", "seqlen_k"),
        *("head_dim", "head_dim_v", "width"),
    )
    assert [values[name] for name in shape] == [2, 4, 2, 2, 48, 64, 64, 64, 64]
    assert (values["sm_scale"], values["dropout_p"], values["dropout"]) == (0.125, 0.0, 0)
    assert (values["dtype"], values["mask"], values["window_right"], values["philox_offset2"]) == (
        FP16,
        1,
        0,
        7,
    )


def test_launch_geometry(driver: Driver) -> None:
    driver.send("clear")
    assert driver.rc(Problem().line("fwd")) == 0
    (launch,) = driver.launches()
    assert (launch["grid"], launch["block"]) == ([2, 4, 2], [256, 1, 1])
    assert (launch["dynamic_lds"], launch["static_lds"], launch["kernel"]) == (256, 1024, "attn_fwd")


def test_backward_values_and_lazy_tensors(driver: Driver) -> None:
    driver.send("clear")
    problem = Problem(dtype=BF16)
    assert driver.rc(problem.line("bwd")) == 0
    values = decode(driver.launches()[-1], ATTN_BWD)
    fields = problem.fields(backward=True)
    for name in ("Q", "K", "V", "Out", "DO", "DQ", "DK", "DV", "L", "D"):
        assert values[name] == fields[name].base
    assert [values[f"stride_dk{x}"] for x in "zhn"] == [2 * 64 * 64, 64 * 64, 64]
    assert [values[f"stride_{x}"] for x in ("dz", "dh", "dm", "lz", "lh", "lm")] == [192, 48, 1] * 2
    assert values["dtype"] == BF16
    # DQ_ACC is looked at by no kernel of the pack, so it is not acquired
    assert driver.send("events") == "events +D -D"


def test_a_lazy_tensor_is_disposed_of_after_every_failure(driver: Driver) -> None:
    driver.send("clear")
    driver.send("fail hipModuleLaunchKernel:1:719")
    assert driver.rc(Problem().line("bwd")) == 719
    bad = Problem(extra={"D": Tensor(0x900000, (3, 3), FP32)})
    assert driver.rc(bad.line("bwd")) == INVALID_VALUE
    assert driver.send("events") == "events +D -D +D -D"


def test_an_exception_of_the_callback_reaches_the_caller(driver: Driver) -> None:
    driver.send("clear")
    assert driver.rc(Problem(extra={"throw": 1}).line("bwd")) == -1
    assert (
        driver.send("events") == "events +D"
    )  # it threw instead of handing over a tensor: nothing to dispose of
    assert driver.rc(Problem().line("bwd")) == 0


def test_nothing_is_acquired_for_a_call_that_is_not_covered(driver: Driver) -> None:
    driver.send("clear")
    assert driver.rc(Problem(head_dim=72).line("bwd")) == NOT_SUPPORTED
    assert driver.send("events") == "events"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    q=st.integers(1, 6),
    k=st.integers(1, 6),
    left=st.one_of(st.integers(-9, 9), st.sampled_from([2**31 - 1, -(2**31), TOP_LEFT, BOTTOM_RIGHT])),
    right=st.one_of(st.integers(-9, 9), st.sampled_from([2**31 - 1, -(2**31), TOP_LEFT, BOTTOM_RIGHT])),
)
def test_windows_mean_the_same_mask(driver: Driver, q: int, k: int, left: int, right: int) -> None:
    """Against the definition: key j serves query i when i - left <= j <= i + right, sentinels resolved."""
    aligned = {TOP_LEFT: 0, BOTTOM_RIGHT: k - q}
    right_bound = aligned.get(right, right)
    open_left = left in aligned
    left_bound = q if open_left else left
    wanted = {(i, j) for i in range(q) for j in range(k) if i - left_bound <= j <= i + right_bound}
    extra = {"causal_type": 3, "window_left": left, "window_right": right}
    driver.send("clear")
    assert driver.rc(Problem(seqlen_q=q, seqlen_k=k, extra=extra).line("fwd")) == 0
    values = decode(driver.launches()[-1], ATTN_FWD)
    lower, upper = -values["window_left"], values["window_right"]
    assert values["mask"] == 1 and -q <= lower <= k and -q <= upper <= k
    assert wanted == {(i, j) for i in range(q) for j in range(k) if i + lower <= j <= i + upper}


def test_full_attention_ignores_window_values(driver: Driver) -> None:
    values = forward(driver, Problem(extra={"causal_type": 0, "window_left": 1, "window_right": 1}))
    assert (values["mask"], values["window_left"], values["window_right"]) == (0, 0, 0)


@pytest.mark.parametrize("verb", ["v2fwd", "v2bwd"])
def test_version_two_is_version_three(driver: Driver, verb: str) -> None:
    op = ATTN_FWD if verb == "v2fwd" else ATTN_BWD
    driver.send("clear")
    assert driver.rc(Problem(extra={"is_causal": 1, "DQ_ACC": None}).line(verb)) == 0
    assert (
        driver.rc(Problem(extra={"causal_type": 3, "window_left": 48, "window_right": 0}).line(verb[2:])) == 0
    )
    two, three = (decode(launch, op) for launch in driver.launches())
    assert two == three and two["mask"] == 1


def test_strides_that_cannot_matter_are_zero(driver: Driver) -> None:
    odd = Tensor(0x100000, (1, 1, 1, 64), FP16, (7, 5, 3, 1))
    values = forward(driver, Problem(batch=1, heads_q=1, heads_k=1, seqlen_q=1, extra={"Q": odd}))
    assert [values[f"stride_q{x}"] for x in "zhm"] == [0, 0, 0]


def test_every_tensor_has_strides_of_its_own(driver: Driver) -> None:
    """As views of other tensors have them: none is taken for another's (ROCm/aotriton#236)."""
    problem, tensors = Problem(), {}
    for number, (name, field) in enumerate(problem.fields(backward=True).items()):
        if isinstance(field, Tensor) and len(field.sizes) == 4 and name != "DQ_ACC":
            strides = [8 * (size + number) for size in contiguous(field.sizes)[:3]]
            tensors[name] = Tensor(field.base, field.sizes, field.dtype, (*strides, 1))
    assert len(tensors) == 8
    for verb, op in (("fwd", ATTN_FWD), ("bwd", ATTN_BWD)):
        driver.send("clear")
        assert driver.rc(Problem(extra=tensors).line(verb)) == 0
        values = decode(driver.launches()[-1], op)
        for name, tensor in tensors.items():
            letter = name.lower().replace("out", "o")
            rows = "n" if letter[-1] in "kv" else "m"
            if name in {"Q", "K", "V", "Out"} or verb == "bwd":
                assert tensor.strides is not None
                assert tuple(values[f"stride_{letter}{x}"] for x in f"zh{rows}") == tensor.strides[:3], name


def test_large_strides_arrive_unchanged(driver: Driver) -> None:
    far = Tensor(0x100000, (2, 4, 48, 64), FP16, (2**40, 2**36, 2**34, 1))
    values = forward(driver, Problem(extra={"Q": far}))
    assert [values[f"stride_q{x}"] for x in "zhm"] == [2**40, 2**36, 2**34]


@pytest.mark.parametrize(
    ("sizes", "grids"),
    [
        ({"seqlen_q": 0}, []),
        ({"batch": 0}, []),
        ({"seqlen_k": 0}, [[2, 4, 2]]),
        ({"heads_q": 0, "heads_k": 0}, []),
    ],
)
def test_empty_forward_problems(driver: Driver, sizes: dict[str, Any], grids: list[list[int]]) -> None:
    driver.send("clear")
    empty = {name: Tensor(0, shape, FP16) for name, shape in _shapes(Problem(**sizes)).items() if 0 in shape}
    assert driver.rc(Problem(**sizes, extra=empty).line("fwd")) == 0
    assert [launch["grid"] for launch in driver.launches()] == grids


UNSET = (0, 0, 0, 0)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seqlen_q": 0}, {"heads_q": 0, "heads_k": 0}])
def test_null_tensors_of_an_empty_problem_may_be_unset(driver: Driver, sizes: dict[str, Any]) -> None:
    problem = Problem(**sizes)
    empty = {name: Tensor(0, shape, FP16) for name, shape in _shapes(problem).items() if 0 in shape}
    unset = {"Out": Tensor(0, UNSET, 0, UNSET), "L": Tensor(0, (0, 0), 0, (0, 0))}
    assert driver.rc(replace(problem, extra={**empty, **unset}).line("fwd")) == 0
    unset |= {name: Tensor(0, UNSET, 0, UNSET) for name in ("DO", "DQ")}
    assert driver.rc(replace(problem, extra={**empty, **unset}).line("bwd")) == 0


def _shapes(p: Problem) -> dict[str, tuple[int, ...]]:
    q, k = (p.batch, p.heads_q, p.seqlen_q, p.head_dim), (p.batch, p.heads_k, p.seqlen_k, p.head_dim)
    return {"Q": q, "K": k, "V": k, "Out": q}


def test_a_backward_pass_without_queries_still_reaches_the_keys(driver: Driver) -> None:
    driver.send("clear")
    assert driver.rc(Problem(seqlen_q=0).line("bwd")) == 0
    assert [launch["grid"] for launch in driver.launches()] == [[2, 4, 2]]


MALFORMED: dict[str, dict[str, Any]] = {
    "another sequence length": {"V": Tensor(4096, (2, 2, 63, 64), FP16)},
    "another batch": {"K": Tensor(4096, (3, 2, 64, 64), FP16)},
    "another head_dim": {"K": Tensor(4096, (2, 2, 64, 32), FP16)},
    "heads that do not divide": {
        "K": Tensor(4096, (2, 3, 64, 64), FP16),
        "V": Tensor(4096, (2, 3, 64, 64), FP16),
    },
    "another dtype": {"K": Tensor(4096, (2, 2, 64, 64), BF16)},
    "a bias of another dtype": {"B": Tensor(4096, (2, 4, 48, 64), FP32)},
    "no dtype": {name: Tensor(4096, (2, 2, 64, 64), 0) for name in "QKV"},
    "last stride not 1": {"Q": Tensor(4096, (2, 4, 48, 64), FP16, (24576, 6144, 128, 2))},
    "no memory": {"Q": Tensor(0, (2, 4, 48, 64), FP16)},
    "half-precision L": {"L": Tensor(4096, (8, 48), FP16)},
    "small L": {"L": Tensor(4096, (4, 48), FP32)},
    "overlapping L": {"L": Tensor(4096, (8, 48), FP32, (1, 1))},
    "strided L": {"L": Tensor(4096, (8, 48), FP32, (96, 2))},
    "small Out": {"Out": Tensor(4096, (2, 4, 47, 64), FP16)},
    "broadcast Out": {"Out": Tensor(4096, (2, 4, 48, 64), FP16, (0, 3072, 64, 1))},
    **{f"unknown causal type {kind}": {"causal_type": kind} for kind in (1, 2, 4, -1)},
    "unknown varlen type": {"varlen_type": 9},
    "dropout over 1": {"dropout_p": 1.5, "philox_seed": 8, "philox_offset1": 8},
    "dropout is not a number": {"dropout_p": "nan"},
    "dropout without seed": {"dropout_p": 0.5},
    "huge stride": {"Q": Tensor(4096, (2, 4, 48, 64), FP16, (2**63, 3072, 64, 1))},
}


@pytest.mark.parametrize("why", MALFORMED)
def test_malformed_calls_are_invalid(driver: Driver, why: str) -> None:
    driver.send("clear")
    assert driver.rc(Problem(extra=MALFORMED[why]).line("fwd")) == INVALID_VALUE
    if why != "broadcast Out":  # an input of the backward pass: broadcasting is fine there
        assert driver.rc(Problem(extra=MALFORMED[why]).line("bwd")) == INVALID_VALUE
    assert (driver.launches(), driver.send("events")) == ([], "events")


UNCOVERED: dict[str, Problem] = {
    "head_dim": Problem(head_dim=72),
    "dtype": Problem(dtype=FP32),
    "integers": Problem(dtype=12),
    "bias": Problem(extra={"B": Tensor(4096, (2, 4, 48, 64), FP16)}),
    "dropout": Problem(extra={"dropout_p": 0.5, "philox_seed": 8, "philox_offset1": 8}),
    "another back end": Problem(extra={"backend": 1}),
    "bias and a window": Problem(
        extra={
            "B": Tensor(4096, (2, 4, 48, 64), FP16),
            **{"causal_type": 3, "window_left": 4, "window_right": 4},
        }
    ),
    "ALiBi": Problem(extra={"A": Tensor(4096, (8, 48), FP32)}),
    "a size over 2^31": Problem(seqlen_q=2**31),
    "a grid over 65536": Problem(heads_q=65537, heads_k=1, seqlen_q=1, batch=1),
    "more than 2^30 queries": Problem(heads_q=1, heads_k=1, seqlen_q=2**30 + 1, batch=1),
    "more than 2^30 keys": Problem(seqlen_k=2**30 + 1),
}


@pytest.mark.parametrize("why", UNCOVERED)
def test_valid_calls_without_an_image_are_not_supported(driver: Driver, why: str) -> None:
    driver.send("clear")
    for verb in ("fwd",) if why == "ALiBi" else ("fwd", "bwd"):  # the backward's params have no such field
        assert driver.rc(UNCOVERED[why].line(verb)) == NOT_SUPPORTED
    assert (driver.launches(), driver.send("events")) == ([], "events")


@pytest.mark.parametrize("sizes", [{"batch": 65536, "heads_q": 1, "heads_k": 1}, {"heads_q": 65536}])
def test_the_largest_grid(driver: Driver, sizes: dict[str, int]) -> None:
    """HIP takes 65536 along y and z."""
    driver.send("clear")
    assert driver.rc(Problem(seqlen_q=1, seqlen_k=1, extra={}, **sizes).line("fwd")) == 0
    (launch,) = driver.launches()
    assert 65536 in launch["grid"]


def test_the_most_rows(driver: Driver) -> None:
    assert forward(driver, Problem(seqlen_k=2**30))["seqlen_k"] == 2**30
    driver.send("clear")
    assert driver.rc(Problem(seqlen_q=2**30).line("bwd")) == 0
    assert decode(driver.launches()[-1], ATTN_BWD)["seqlen_q"] == 2**30


NO_LSE = (None, Tensor(0, (0, 0), FP32), Tensor(0, (8, 48), FP32))


@pytest.mark.parametrize("lse", NO_LSE)
def test_a_null_lse_is_not_wanted(driver: Driver, lse: Tensor | None) -> None:
    """As in PyTorch's inference. The backward pass reads it and cannot do without."""
    values = forward(driver, Problem(extra={"L": lse}))
    assert (values["L"], values["stride_lz"]) == (0, 0)
    for verb, code in (("v2fwd", 0), ("bwd", INVALID_VALUE), ("v2bwd", INVALID_VALUE)):
        assert driver.rc(Problem(extra={"L": lse, "DQ_ACC": None}).line(verb)) == code


@pytest.fixture(scope="module")
def wide(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of a pack with bias and compact variable length."""
    folder = tmp_path_factory.mktemp("wide")
    write(spy_pack(options={"mask": (0, 1, 2)}), folder / "amd-gfx908")
    with Driver(objects, folder) as started:
        assert started.rc("check") == 0
        yield started


def test_a_longest_key_sequence_of_zero_is_unknown(wide: Driver) -> None:
    """PyTorch passes 0: all rows of K together bound it."""
    for longest, bound in ((30, 30), (0, 64)):
        problem = Problem(batch=1, extra={**VARLEN, "max_seqlen_k": longest, "DQ_ACC": None})
        for verb, op in (("v2varfwd", ATTN_FWD), ("v2varbwd", ATTN_BWD)):
            wide.send("clear")
            assert wide.rc(problem.line(verb)) == 0
            assert decode(wide.launches()[-1], op)["seqlen_k"] == bound


TRANSPOSED = Tensor(4096, (2, 4, 48, 64), FP16, (4 * 48 * 64, 48 * 64, 1, 48))


def test_a_bias_of_any_strides(wide: Driver) -> None:
    values = forward(wide, Problem(extra={"B": TRANSPOSED}))
    assert [values[f"stride_b{x}"] for x in "zhmn"] == [12288, 3072, 1, 48]
    values = forward(wide, Problem(extra={"B": Tensor(4096, (2, 4, 48, 64), FP16, (0, 0, 0, 0))}))
    assert [values[f"stride_b{x}"] for x in "zhmn"] == [0, 0, 0, 0]
    wide.send("clear")
    assert wide.rc(Problem(extra={"B": TRANSPOSED, "DB": TRANSPOSED}).line("bwd")) == 0
    values = decode(wide.launches()[-1], ATTN_BWD)
    assert [values[f"stride_db{x}"] for x in "zhmn"] == [12288, 3072, 1, 48]


def test_bias_strides_are_never_ignored(objects: Objects, tmp_path: Path) -> None:
    """Kernels that do not look at the last stride serve unit strides only: not supported, and not
    malformed."""
    unit = Tensor(4096, (2, 4, 48, 64), FP16)
    for lost in ("stride_bn", "stride_dbn"):
        pack = spy_pack(without=(lost,), options={"mask": (0, 2)})
        write(pack, tmp_path / lost / "amd-gfx908")
        with Driver(objects, tmp_path / lost) as driver:
            assert driver.rc(Problem(extra={"B": unit, "DB": unit}).line("bwd")) == 0
            assert driver.rc(Problem(extra={"B": TRANSPOSED, "DB": TRANSPOSED}).line("bwd")) == NOT_SUPPORTED
            if lost == "stride_bn":
                assert driver.rc(Problem(extra={"B": unit}).line("fwd")) == 0
                assert driver.rc(Problem(extra={"B": TRANSPOSED}).line("fwd")) == NOT_SUPPORTED


def test_what_kernels_do_not_heed_is_never_ignored(objects: Objects, tmp_path: Path) -> None:
    """The spy kernels take these values; a pack that does not must refuse."""
    lost = ("dropout", "window_left", "window_right", "varlen_bits", "head_dim_v")
    write(spy_pack(without=lost), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc(Problem().line("fwd")) == 0
        for extra in (
            {"encoded_softmax": Tensor(4096, (2, 4, 48, 64), FP16)},
            {"dropout_p": 0.5, "philox_seed": 8, "philox_offset1": 8},
            {"causal_type": 3, "window_left": TOP_LEFT, "window_right": 5},
            {"causal_type": 3, "window_left": 4, "window_right": 64},
            {"V": Tensor(4096, (2, 2, 64, 32), FP16), "Out": Tensor(4096, (2, 4, 48, 32), FP16)},
        ):
            assert driver.rc(Problem(extra=extra).line("fwd")) == NOT_SUPPORTED
        assert (
            driver.rc(Problem(extra={"causal_type": 3, "window_left": 48, "window_right": 64}).line("fwd"))
            == 0
        )


@pytest.mark.parametrize("verb", ["fwd", "bwd", "aiter"])
@pytest.mark.parametrize("version", [0, 2, 4, -1])
def test_params_of_another_version(driver: Driver, verb: str, version: int) -> None:
    driver.send("clear")
    assert driver.rc(Problem(extra={"version": version}).line(verb)) == INVALID_SYMBOL
    assert (driver.launches(), driver.send("events")) == ([], "events")


VARLEN = {
    "varlen_type": 1,
    "cu_seqlens_q": Tensor(4096, (4,), 12),
    "cu_seqlens_k": Tensor(4096, (4,), 12),
    "max_seqlen_q": 20,
    "max_seqlen_k": 30,
    "L": Tensor(0x800000, (12, 20), FP32),
    "D": Tensor(0x900000, (12, 20), FP32),
}


@pytest.mark.parametrize(
    ("verb", "extra"),
    [
        ("aiter", {}),
        ("v2fused", {}),
        ("softmax", {}),
    ],
)
def test_entry_points_without_kernels_check_arguments_first(
    driver: Driver, verb: str, extra: dict[str, Any]
) -> None:
    assert driver.rc(Problem(batch=1, extra=extra).line(verb)) == NOT_SUPPORTED
    broken = {**extra, "Q": Tensor(0, (1, 4, 48, 64), FP16)}
    assert driver.rc(Problem(batch=1, extra=broken).line(verb)) == INVALID_VALUE


@pytest.fixture(scope="module")
def dropping(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of a pack with dropout, and the mask in fp16 and fp32."""
    folder = tmp_path_factory.mktemp("dropping")
    pack = spy_pack(options={"dropout": (0, 1)}, mask_dtypes=(FP16, FP32))
    write(pack, folder / "amd-gfx908")
    with Driver(objects, folder) as started:
        assert started.rc("check") == 0
        yield started


SEEDS = {"philox_seed": 64, "philox_offset1": 72, "philox_seed_output": 80, "philox_offset_output": 88}


def test_seeds_are_passed_on_with_dropout_alone(dropping: Driver) -> None:
    """Without it they may be host memory, and outputs are not written."""
    on = forward(dropping, Problem(extra={**SEEDS, "dropout_p": 0.25, "philox_offset2": 9}))
    assert {name: on[name] for name in SEEDS} == SEEDS
    assert (on["dropout"], on["dropout_p"], on["philox_offset2"]) == (1, 0.25, 9)
    off = forward(dropping, Problem(extra=SEEDS))
    assert {off[name] for name in SEEDS} == {0} and off["dropout"] == 0
    dropping.send("clear")
    assert dropping.rc(Problem(extra={**SEEDS, "dropout_p": 0.25}).line("bwd")) == 0
    assert decode(dropping.launches()[-1], ATTN_BWD)["philox_seed"] == 64


def test_a_captured_call_only_launches(dropping: Driver) -> None:
    """After a warm-up: nothing is loaded, allocated, copied or waited for, and the seed is read by kernels
    alone, at each replay."""
    line = Problem(extra={**SEEDS, "dropout_p": 0.25, "encoded_softmax": R}).line("fwd")
    assert dropping.rc(line) == 0
    refused = (
        "hipModuleLoadData",
        "hipModuleUnload",
        "hipMalloc",
        "hipFree",
        "hipMemcpy",
        "hipStreamSynchronize",
        "hipDeviceSynchronize",
    )
    dropping.send("clear")
    assert dropping.rc(line) == 0
    assert {
        name for name in refused if dropping.send(f"calls {name}") != "0"
    } == set()  # counted since "clear"
    assert [event["event"] for event in dropping.record()] == ["launch", "launch"]


@pytest.mark.parametrize(("dtype", "code"), [(13, 0), (23, 0), (12, INVALID_VALUE), (0, INVALID_VALUE)])
def test_the_dtypes_of_seeds(dropping: Driver, dtype: int, code: int) -> None:
    """Eager PyTorch passes int64, captured uint64."""
    extra = {**SEEDS, "dropout_p": 0.25, "seed_dtype": dtype}
    assert dropping.rc(Problem(extra=extra).line("fwd")) == code
    assert dropping.rc(Problem(extra={**extra, "dropout_p": 0}).line("fwd")) == 0


R = Tensor(0x600000, (2, 4, 48, 64), FP16)


def test_encoded_softmax_is_a_second_step(dropping: Driver) -> None:
    dropping.send("clear")
    extra = {**SEEDS, "dropout_p": 0.5, "encoded_softmax": R, "philox_offset2": 9}
    assert dropping.rc(Problem(extra=extra).line("fwd")) == 0
    first, second = dropping.launches()
    assert (first["kernel"], second["kernel"]) == ("attn_fwd", "attn_dropout_mask")
    mask = decode(second, ATTN_DROPOUT_MASK)
    assert [mask[f"stride_r{x}"] for x in "zhmn"] == [4 * 48 * 64, 48 * 64, 64, 1]
    shape = [mask[name] for name in ("batch", "num_head_q", "seqlen_q", "seqlen_k", "dtype")]
    assert shape == [2, 4, 48, 64, FP16] and mask["R"] == 0x600000
    assert (mask["dropout_p"], mask["philox_seed"], mask["philox_offset1"], mask["philox_offset2"]) == (
        0.5,
        64,
        72,
        9,
    )
    one_axis = [[0 if i == axis else size for i, size in enumerate((2, 4, 48, 64))] for axis in range(4)]
    empties = [Tensor(4096, sizes, dtype) for sizes in (UNSET, *one_axis) for dtype in (FP16, BF16)]
    for empty in (Tensor(0, UNSET, FP16), *empties):  # bf16 has no mask kernel, and none is looked up
        dropping.send("clear")
        assert dropping.rc(Problem(extra={"encoded_softmax": empty}).line("fwd")) == 0
        assert len(dropping.launches()) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"encoded_softmax": Tensor(0x600000, (2, 4, 48, 64), BF16)}, NOT_SUPPORTED),  # no mask kernel
        ({"encoded_softmax": Tensor(0x600000, (2, 3, 48, 64), FP16)}, INVALID_VALUE),
        ({"encoded_softmax": Tensor(0x600000, (2, 4, 48, 64), FP16, (1, 1, 1, 0))}, INVALID_VALUE),
        ({"encoded_softmax": R, "dropout_p": 2}, INVALID_VALUE),
    ],
)
def test_nothing_is_launched_when_the_mask_is_not_served(
    dropping: Driver, changes: dict[str, Any], code: int
) -> None:
    dropping.send("clear")
    assert dropping.rc(Problem(extra={**SEEDS, "dropout_p": 0.5, **changes}).line("fwd")) == code
    assert dropping.launches() == []


@pytest.mark.parametrize("dtype", [FP16, FP32])
def test_the_debug_call_writes_the_mask(dropping: Driver, dtype: int) -> None:
    dropping.send("clear")
    extra = {"Q": Tensor(0x600000, (2, 4, 48, 64), dtype), "dropout_p": 0.5}
    assert dropping.rc(Problem(extra=extra).line("softmax")) == 0  # a null seed counts as 0
    assert dropping.rc(Problem(extra={**extra, **SEEDS}).line("softmax")) == 0
    found = [decode(launch, ATTN_DROPOUT_MASK) for launch in dropping.launches()]
    assert [mask["philox_seed"] for mask in found] == [0, 64]
    assert {mask["dtype"] for mask in found} == {dtype}
    for wrong in (
        {"dropout_p": 1.5},
        {"Q": Tensor(0, (2, 4, 48, 64), dtype)},
        {"Q": Tensor(8, (2, 4, 48, 64), 0)},
    ):
        assert dropping.rc(Problem(extra={**extra, **wrong}).line("softmax")) == INVALID_VALUE
