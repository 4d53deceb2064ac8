"""flash-attn's functions on this processor beside float64, and their errors."""

from __future__ import annotations

import inspect
import random as random_numbers
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.families import PROJECT

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch", reason="needs PyTorch")
own = pytest.importorskip("aotforge_flash")
packed = pytest.importorskip("aotforge_flash.packed")
flash_attn_func, flash_attn_varlen_func = own.flash_attn_func, own.flash_attn_varlen_func
flash_attn_with_kvcache, reshape_and_cache = own.flash_attn_with_kvcache, own.reshape_and_cache
ArgumentError, LaunchError, NotServedError = own.ArgumentError, own.LaunchError, own.NotServedError
pytestmark = [pytest.mark.compiler, pytest.mark.torch, pytest.mark.usefixtures("library")]
_BOUND = 3e-3
"""float16 has 11 digits; sums of up to 80 keys."""


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).half()


def reference(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0, s_aux: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(batch, rows, heads, head_dim) in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    n_q, n_k = scores.shape[-2:]
    distance = torch.arange(n_k) - (torch.arange(n_q)[:, None] + n_k - n_q)
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = (distance < -left) & (left >= 0) | (distance > right) & (right >= 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if s_aux is not None:
        sinks = s_aux.double()[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sinks), -1)
    weights = scores.softmax(-1).nan_to_num()[..., :n_k]
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def error(result: Tensor, wanted: Tensor) -> float:
    return float((result.double() - wanted).detach().abs().max())


MASKS: list[dict[str, Any]] = [
    {}, {"causal": True}, {"window_size": (5, 3)}, {"causal": True, "window_size": (7, 7)},
]  # fmt: skip
SCORES: list[dict[str, Any]] = [
    {"causal": True, "softcap": 3.0},
    {"window_size": (6, 0), "s_aux": torch.tensor([0.5, -2.0, 3.0, 1.0])},
]


@pytest.mark.parametrize("lengths", [(33, 33), (5, 70), (20, 9)])
@pytest.mark.parametrize("width", [40, 64])
def test_results_and_gradients(lengths: tuple[int, int], width: int) -> None:
    n_q, n_k = lengths
    for options in MASKS:
        inputs = [random(2, n_q, 4, width), random(2, n_k, 2, width), random(2, n_k, 2, width, seed=1)]
        own, double = (
            [x.detach().to(t).requires_grad_() for x in inputs] for t in (torch.float16, torch.float64)
        )
        out, wanted = flash_attn_func(*own, **options), reference(*double, **options)
        assert error(out, wanted) < _BOUND, options
        grad = random(*out.shape, seed=2)
        out.backward(grad)
        wanted.backward(grad.double())
        for one, other in zip(own, double, strict=True):
            assert one.grad is not None and error(one.grad, other.grad) < 2 * _BOUND, options
    for options in SCORES:
        assert error(flash_attn_func(*inputs, **options), reference(*inputs, **options)) < _BOUND, options


def test_tensors_packed_into_one() -> None:
    q, kv = random(2, 5, 4, 64), random(2, 9, 2, 2, 64).requires_grad_()
    made = packed.flash_attn_kvpacked_func(q, kv, causal=True)
    assert torch.equal(made, flash_attn_func(q, *kv.unbind(2), causal=True))
    made.sum().backward()
    assert kv.grad is not None and kv.grad.shape == kv.shape
    qkv = random(2, 7, 3, 4, 64)
    made = packed.flash_attn_qkvpacked_func(qkv, 0.0, 0.5)
    assert torch.equal(made, flash_attn_func(*qkv.unbind(2), softmax_scale=0.5))
    starts = torch.tensor([0, 7, 14]).int()
    tokens = qkv.flatten(0, 1)
    wanted = flash_attn_varlen_func(*tokens.unbind(1), starts, starts, 7, 7, causal=True)
    assert torch.equal(packed.flash_attn_varlen_qkvpacked_func(tokens, starts, 7, causal=True), wanted)
    layout = (starts, starts, 7, 7)
    made = packed.flash_attn_varlen_kvpacked_func(tokens[:, 0], tokens[:, 1:], *layout, causal=True)
    assert torch.equal(made, wanted)


def test_packed_sequences() -> None:
    for rows, keys in (((3, 17, 1), (3, 17, 1)), ((4, 1, 9), (20, 5, 33))):
        starts = [torch.tensor((0, *one)).cumsum(0).int() for one in (rows, keys)]
        q, k, v = random(sum(rows), 4, 64), random(sum(keys), 2, 64), random(sum(keys), 2, 64, seed=1)
        masks: list[dict[str, Any]] = [*MASKS[:2], {"causal": True, "window_size": (4, 0)}, *SCORES]
        for options in masks:
            out, lse, _ = flash_attn_varlen_func(
                q, k, v, starts[0], starts[1], max(rows), max(keys), return_attn_probs=True, **options
            )
            assert lse.shape == (4, sum(rows))
            for z in range(len(rows)):
                own, of_keys = (slice(*one[z : z + 2]) for one in starts)
                wanted = reference(q[None, own], k[None, of_keys], v[None, of_keys], **options)
                assert error(out[own], wanted[0]) < _BOUND, (rows, options)


@pytest.mark.parametrize("kind", [torch.float16, torch.int8])
@pytest.mark.parametrize("page_size", [None, 16])
@pytest.mark.parametrize("splits", [0, 3])
def test_new_keys_are_written_and_seen(kind: Any, page_size: int | None, splits: int) -> None:
    """Of caches without and with pages in any order, of 16 and 8 bits."""
    batch, keys = 3, 96
    scale = torch.tensor([0.05, 0.03] if page_size else [0.05])  # pages: one for each head
    used = torch.tensor([10, 77, 0], dtype=torch.int32)

    def stored(x: Tensor) -> Tensor:
        return x if kind == torch.float16 else (x.float() / scale[:, None]).round().clamp(-128, 127).to(kind)

    def number(x: Tensor) -> Tensor:
        return x if kind == torch.float16 else x * scale[:, None]

    full = [stored(random(batch, keys, 2, 64, seed=seed)) for seed in (0, 1)]
    settings: dict[str, Any] = {"num_splits": splits, "causal": True, "cache_seqlens": used}
    if kind == torch.int8:
        settings |= dict.fromkeys(("k_descale", "v_descale"), scale)
    caches = [x.clone() for x in full]
    if page_size:
        order = torch.randperm(batch * keys // page_size, generator=torch.Generator().manual_seed(0))
        table = order.view(batch, -1).int()
        caches = [torch.empty_like(x).view(-1, page_size, 2, 64) for x in full]
        for cache, x in zip(caches, full, strict=True):
            cache[order] = x.view(-1, page_size, 2, 64)
        table[2, 1:] = -1  # beyond what the last sequence has
        settings["block_table"] = table
    q, new = random(batch, 2, 8, 64), [random(batch, 2, 2, 64, seed=seed) for seed in (2, 3)]
    out = flash_attn_with_kvcache(q, *caches, *new, **settings)
    for z in range(batch):
        seen = [
            torch.cat((number(x[z, : used[z]]), number(stored(n[z]))))[None]
            for x, n in zip(full, new, strict=True)
        ]
        assert error(out[z : z + 1], reference(q[z : z + 1], *seen, causal=True)) < _BOUND


def test_rotary_positions_of_both_kinds() -> None:
    angle = torch.arange(40)[:, None] * 0.5 ** torch.arange(16)
    cos, sin = angle.cos(), angle.sin()
    q, k, v = random(1, 3, 2, 64), random(1, 3, 2, 64, seed=1), random(1, 3, 2, 64, seed=2)
    for interleaved in (False, True):
        caches = [torch.zeros(1, 8, 2, 64).half() for _ in range(2)]
        flash_attn_with_kvcache(
            q, caches[0], caches[1], k, v, cos, sin, 4, causal=True, rotary_interleaved=interleaved
        )
        first, second = (k[..., 0:32:2], k[..., 1:32:2]) if interleaved else (k[..., :16], k[..., 16:32])
        turned = (
            torch.complex(first.double(), second.double())
            * torch.polar(torch.ones(3, 16).double(), angle[4:7].double())[None, :, None]
        )
        found = caches[0][:, 4:7]
        parts = (
            (found[..., 0:32:2], found[..., 1:32:2]) if interleaved else (found[..., :16], found[..., 16:32])
        )
        assert error(parts[0], turned.real) < _BOUND and error(parts[1], turned.imag) < _BOUND
        assert torch.equal(found[..., 32:], k[..., 32:]) and torch.equal(caches[1][:, 4:7], v)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": random(2, 2, 4, 64).float()}, "q: torch.float32 is not float16 or bfloat16"),
        ({"k": random(2, 9, 3, 64), "v": random(2, 9, 3, 64)}, "k: 3 heads do not divide the 4 of q"),
        ({"v": random(2, 8, 2, 64)}, r"v: shape \(2, 8, 2, 64\) is not \(2, 9, 2, 64\)"),
        ({"k": random(2, 9, 2, 64).bfloat16()}, "k: torch.bfloat16 differs from torch.float16 of q"),
        ({"k": torch.empty(2, 9, 2, 64, dtype=torch.float16, device="meta")}, "k: is on meta, and q on cpu"),
        ({"window_size": (1,)}, r"window_size: \(1,\) is not \(left, right\)"),
    ],
)  # fmt: skip
def test_arguments_that_no_call_may_have(change: dict[str, Any], message: str) -> None:
    call = {"q": random(2, 2, 4, 64), "k": random(2, 9, 2, 64), "v": random(2, 9, 2, 64), **change}
    with pytest.raises(ArgumentError, match=f"^{message}"):
        flash_attn_func(**call)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alibi_slopes": torch.ones(4)}, "alibi_slopes: there are no kernels with ALiBi"),
        ({"dropout_p": 0.1}, "dropout_p: 0.1 is not served"),
        ({"softcap": 1.0, "window_size": (3, 3)}, r"window_size: \(3, 3\): over pages"),
    ],
)
def test_what_is_not_served_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(NotServedError, match=f"^{message}"):
        flash_attn_func(random(2, 2, 4, 64), random(2, 9, 2, 64), random(2, 9, 2, 64), **change)


INT8: dict[str, Any] = {name: torch.zeros(4, 16, 2, 64, dtype=torch.int8) for name in ("k_cache", "v_cache")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_table": torch.tensor([[0, 4]])}, "block_table: torch.int64 is not int32"),
        ({"block_table": torch.tensor([[0, 4]]).int()}, "block_table: 4 is not within 0 and 3"),
        ({"block_table": torch.tensor([[0, -1]]).int()}, "block_table: -1 is not within 0 and 3"),
        ({"block_table": torch.zeros(2, 2).int()}, r"block_table: shape \(2, 2\) is not \(1, any\)"),
        ({"cache_seqlens": torch.tensor([33]).int()}, "cache_seqlens: 33 is not within 0 and 32"),
        ({"cache_seqlens": torch.tensor([-1]).int()}, "cache_seqlens: -1 is not within 0 and 32"),
        ({"cache_seqlens": torch.tensor([3])}, "cache_seqlens: torch.int64 is not int32"),
        ({"k": random(1, 2, 2, 64), "v": random(1, 2, 2, 64), "cache_seqlens": torch.tensor([31]).int()},
         "cache_seqlens: 31 is not within 0 and 30"),
        ({"k": random(1, 2, 2, 64), "v": random(1, 2, 2, 64), "cache_seqlens": None},
         "cache_seqlens: is needed with k"),
        ({"v_cache": torch.zeros(4, 16, 2, 64).to(torch.int8)}, "v_cache: torch.int8 differs from"),
        (INT8, "k_descale: a cache of torch.int8 needs one"),
        ({"k_descale": torch.ones(1)}, "k_descale: a cache of torch.float16 has no scale"),
        ({**INT8, "k_descale": torch.ones(1).half(), "v_descale": None}, "k_descale: is not float32"),
        ({**INT8, "k_descale": torch.ones(2), "v_descale": torch.ones(1)},
         r"v_descale: shape \(1,\), and k_descale has \(2,\)"),
        ({name: torch.zeros(4, 16, 2, 65).half()[..., :64] for name in ("k_cache", "v_cache")},
         "k_cache: its address or strides"),
    ],
)  # fmt: skip
def test_arguments_of_caches(change: dict[str, Any], message: str) -> None:
    cache = {"k_cache": torch.zeros(4, 16, 2, 64).half(), "v_cache": torch.zeros(4, 16, 2, 64).half()}
    call = {
        "q": random(1, 1, 4, 64), **cache, "block_table": torch.tensor([[2, 1]]).int(),
        "cache_seqlens": torch.tensor([20]).int(), **change,
    }  # fmt: skip
    with pytest.raises(ArgumentError, match=f"^{message}"):
        flash_attn_with_kvcache(**call)
    assert not cache["k_cache"].any()


def test_other_arguments_that_are_refused() -> None:
    q, cache = random(1, 1, 4, 64), torch.zeros(4, 16, 2, 64).half()
    with pytest.raises(NotServedError, match=r"^cache_leftpad"):
        flash_attn_with_kvcache(q, cache, cache, cache_leftpad=torch.zeros(1).int())
    with pytest.raises(NotServedError, match=r"^k_cache: head_dim 32 has no images for pages"):
        flash_attn_with_kvcache(random(1, 1, 4, 32), random(1, 4, 2, 32), random(1, 4, 2, 32))
    with pytest.raises(NotServedError, match=r"^k_descale: shape \(3,\): one number, or one for each head"):
        flash_attn_with_kvcache(q, *INT8.values(), k_descale=torch.ones(3), v_descale=torch.ones(3))
    with pytest.raises(ArgumentError, match=r"^slots: 64 is not within"):
        reshape_and_cache(random(1, 2, 64), random(1, 2, 64), cache, cache, torch.tensor([64]))
    with pytest.raises(
        ArgumentError, match=r"^cu_seqlens_q: a sequence has 5 tokens, more than max_seqlen 4"
    ):
        starts = torch.tensor([0, 5]).int()
        flash_attn_varlen_func(
            random(5, 2, 64), random(5, 2, 64), random(5, 2, 64), starts, starts, 4, 4, softcap=1.0
        )
    with pytest.raises(LaunchError, match=r"attention of bfloat16, head_dim 64.*no installed image serves"):
        flash_attn_func(*(random(1, 4, 2, 64).bfloat16() for _ in range(3)))
    q.requires_grad_()
    out = flash_attn_with_kvcache(q, cache, cache, cache_seqlens=3, block_table=torch.tensor([[0]]).int())
    with pytest.raises(NotImplementedError, match="no kernels for gradients of attention over pages"):
        out.sum().backward()


def test_operators_are_traced_and_compiled() -> None:
    q, k, v = random(1, 8, 2, 64).requires_grad_(), random(1, 8, 2, 64), random(1, 8, 2, 64)
    operators = torch.ops.aotforge_flash
    torch.library.opcheck(operators.forward.default, (q, k, v, None, None, 8, 8, 0.1, -1, 0))
    caches = [torch.zeros(2, 32, 2, 64).half() for _ in range(2)]
    slots = torch.tensor([3, 40, -1])
    tests = ("test_schema", "test_faketensor")
    new = random(3, 2, 64)
    torch.library.opcheck(operators.write.default, (new, new, *caches, slots, None, None), test_utils=tests)

    def step(q: Tensor, k: Tensor, k_cache: Tensor, v_cache: Tensor, used: Tensor) -> Tensor:
        out: Tensor = flash_attn_with_kvcache(q, k_cache, v_cache, k, k, cache_seqlens=used, causal=True)
        return out * 2

    used, results = torch.tensor([3, 4]).int(), []
    both: list[Any] = [step, torch.compile(step, fullgraph=True, backend="aot_eager")]
    for function in both:
        own = [torch.zeros(2, 32, 2, 64).half() for _ in range(2)]
        results.append((function(random(2, 1, 4, 64), random(2, 1, 2, 64), *own, used), *own))
    assert all(map(torch.equal, *results))
    assert results[0][1][0, 3].any()


def test_the_first_call_imports_no_compiler(library: Path) -> None:
    script = """if True:
        import sys, torch, aotforge_flash as own
        own.load(sys.argv[1])
        q = torch.ones(1, 4, 2, 64).half()
        assert torch.equal(own.flash_attn_func(q, q, q), q)
        sys.exit("torch._dynamo" in sys.modules)
    """
    subprocess.run((sys.executable, "-c", script, str(library)), cwd=PROJECT, check=True)


def test_names_and_defaults_are_those_of_flash_attn() -> None:
    """Version 2.8: positional order and defaults."""
    window = "window_size=(-1, -1), softcap=0.0"
    common = (
        f"dropout_p=0.0, softmax_scale=None, causal=False, {window}, alibi_slopes=None, deterministic=False, "
        "return_attn_probs=False"
    )
    packed = "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
    wanted: dict[Any, str] = {
        flash_attn_func: f"q, k, v, {common}",
        flash_attn_varlen_func: f"{packed}, {common}, block_table=None",
        flash_attn_with_kvcache: (
            "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
            "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
            f"{window}, rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False"
        ),
    }
    for function, text in wanted.items():
        plain = [
            p.name if p.default is p.empty else f"{p.name}={p.default!r}"
            for p in inspect.signature(function).parameters.values()
        ]
        assert ", ".join(plain).startswith(text)


@pytest.mark.slow
def test_500_random_calls_of_caches() -> None:
    check_random_calls_of_caches(500)


def check_random_calls_of_caches(count: int) -> None:
    """Sizes, masks, soft caps, sinks, splits and new keys; pages beyond a sequence are not numbers."""
    rng = random_numbers.Random(42)
    for number in range(count):
        torch.manual_seed(number)
        batch, group, heads_k, width = (rng.choice(x) for x in ((1, 2, 3), (1, 2, 7, 8), (1, 2), (64, 128)))
        page_size, n_q, n_new = (
            rng.choice((16, 48, 256)),
            rng.choice((1, 1, 2, 5, 33)),
            rng.choice((0, 0, 1, 5)),
        )
        used = [rng.randrange(150) for _ in range(batch)]
        columns = -(-(max(used) + n_new) // page_size) + 1
        table = torch.randperm(batch * columns).view(batch, columns).int()
        caches = [
            torch.full((batch * columns, page_size, heads_k, width), torch.nan).half() for _ in range(2)
        ]
        options: dict[str, Any] = {"causal": rng.random() < 0.5, "softcap": rng.choice((0.0, 0.0, 5.0))}
        if rng.random() < 0.3:
            options["window_size"] = (rng.randrange(60), 0)
        if rng.random() < 0.3:
            options["s_aux"] = torch.randn(group * heads_k)
        q, *new = (
            torch.randn(batch, n, h, width).half()
            for n, h in ((n_q, group * heads_k), *2 * ((n_new, heads_k),))
        )
        sequences = []
        for z, length in enumerate(used):
            rows = torch.arange(length)
            filled = [torch.randn(length, heads_k, width).half() for _ in range(2)]
            for cache, x in zip(caches, filled, strict=True):
                cache[table[z, rows // page_size].long(), rows % page_size] = x
            sequences.append([torch.cat((x, n[z]))[None] for x, n in zip(filled, new, strict=True)])
        out = flash_attn_with_kvcache(
            q, *caches, *(new if n_new else (None, None)), cache_seqlens=torch.tensor(used).int(),
            block_table=table, num_splits=rng.choice((0, 1, 3)), **options,
        )  # fmt: skip
        for z, (k, v) in enumerate(sequences):
            wanted = reference(q[z : z + 1], k, v, **options)
            assert error(out[z : z + 1], wanted) < _BOUND, (number, z, options)
