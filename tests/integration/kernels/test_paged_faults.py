# ruff: noqa: E501 - one fault per line
"""Faults planted in the kernels of attention over pages: the verifier's cases find each, and none without;
both steps one after the other."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import ExecutionError
from aotforge.rules import DTYPE_NUMBERS
from kernels.flash_paged.cases import cases
from kernels.flash_paged.problems import problems
from kernels.flash_paged.reference import complete
from kernels.flash_paged.rules import FAMILY
from tests.integration.kernels.attention_call import GFX908, run_operator
from tests.support.families import PROJECT
from tests.support.source_launches import run_launch, select

KERNELS = {kernel.name: kernel for kernel in FAMILY.kernels}
FOLDER = PROJECT / "kernels" / "flash_paged"
SMALL = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_S": 2}
ATTN, COMBINE, WRITE = "paged_attn", "paged_combine", "reshape_and_cache"
LENGTHS = "lengths around a page"
FAULTS = {
    "the page of the next key": (ATTN, LENGTHS, "near // page_size", "(near + 1) // page_size"),
    "a page of another sequence": (ATTN, LENGTHS, "block_table += sequence * stride_table", "block_table += 0 * stride_table"),
    "pages in their order": (ATTN, LENGTHS, "page = tl.load(block_table + near // page_size)", "page = (near // page_size)"),
    "a row of another page": (ATTN, LENGTHS, "place = near % page_size", "place = (near + 1) % page_size"),
    "V's page with K's strides": (ATTN, "several queries", "page * stride_vp", "page * stride_kp"),
    "a key too many": (ATTN, LENGTHS, "n_k = tl.load(seqused_k + sequence)", "n_k = tl.load(seqused_k + sequence) + 1"),
    "a key too few": (ATTN, LENGTHS, "n_k = tl.load(seqused_k + sequence)", "n_k = tl.maximum(tl.load(seqused_k + sequence) - 1, 0)"),
    "the length of the first sequence": (ATTN, LENGTHS, "tl.load(seqused_k + sequence)", "tl.load(seqused_k)"),
    "queries of another sequence": (ATTN, "several queries", "token = (first_q + query)", "token = query"),
    "heads of another group": (ATTN, "several queries", "K += head_k * stride_kh", "K += 0 * stride_kh"),
    "causal from the first key": (ATTN, "several queries", "high = tl.minimum(query + (shift + 1), end)", "high = tl.minimum(query + 1, end)"),
    "no causal bound": (ATTN, "several queries", "high = tl.minimum(query + (shift + 1), end)", "high = high"),
    "a window one key too wide": (ATTN, "window", "low = query + (shift - window_left)", "low = query + (shift - window_left - 1)"),
    "a window that begins too late": (ATTN, "window", "start // group + shift - window_left", "last_q + shift - window_left + 1"),
    "splits that overlap": (ATTN, "splits", "begin + split_keys, n_k)", "begin + split_keys + 1, n_k)"),
    "the last split left out": (ATTN, "splits", "begin + split_keys, n_k)", "begin + split_keys, n_k * (split + 1 < num_splits))"),
    "a split in another's place": (ATTN, "splits", "* num_splits + split\n", "* num_splits + (num_splits - 1 - split)\n"),
    "a sink in every split": (ATTN, "soft cap and sinks", "row_sum * correction + tl.exp2(sink", "row_sum * correction + 2 * tl.exp2(sink"),
    "no soft cap": (ATTN, "soft cap and sinks", "if softcap != 0.0:\n            scores = _tanh(scores) *", "if softcap != 0.0:\n            scores = scores *"),
    "no rescaling": (ATTN, "low scores", "acc * correction[:, None], input", "acc, input"),
    "masked keys count": (ATTN, "low scores", 'tl.where(seen, scores, -float("inf"))', "tl.where(seen, scores, 0.0)"),
    "K without its scale": (ATTN, LENGTHS, "scale *= tl.load(k_scale + head_k * stride_scale)", "scale *= 1.0"),
    "K with the first head's scale": (ATTN, "heads of their own", "tl.load(k_scale + head_k * stride_scale)", "tl.load(k_scale)"),
    "V with K's scale": (ATTN, LENGTHS, "factor = tl.load(v_scale + head_k", "factor = tl.load(k_scale + head_k"),
    "V with the first head's scale": (ATTN, "heads of their own", "tl.load(v_scale + head_k * stride_scale)", "tl.load(v_scale)"),
    "a lost split": (COMBINE, "splits", "mask=splits < num_splits,", "mask=splits < num_splits - 1,"),
    "stale rows of an empty split": (COMBINE, "window and splits", "mask=some[:, None]", "mask=(splits < num_splits)[:, None]"),
    "splits of another head": (COMBINE, "splits", "place = row * num_splits + splits", "place = (row // num_head_q * num_head_q) * num_splits + splits"),
    "the first splits alone": (COMBINE, "splits", "tl.range(0, num_splits, BLOCK_S)", "tl.range(0, BLOCK_S, BLOCK_S)"),
    "weights of the first maximum": (COMBINE, "splits", "acc = acc * correction + ", "acc = acc + "),
    "a slot of the next page": (WRITE, "9 tokens, 2 heads, pages of 16", "page = (slot.to(tl.int32) // page_size)", "page = ((slot.to(tl.int32) + 1) // page_size)"),
    "left-out tokens written": (WRITE, "9 tokens, 2 heads, pages of 16", "if slot < 0:", "if slot < -1:"),
    "V from K": (WRITE, "9 tokens, 2 heads, pages of 16", "tl.load(V_new + (token * stride_wm", "tl.load(K_new + (token * stride_wm"),
    "a scale a tenth too small": (WRITE, "9 tokens, 2 heads, pages of 16", "x.to(tl.float32) / scale", "x.to(tl.float32) / scale * 1.1"),
}  # fmt: skip
"""Kernel, case, sound text, faulty text."""


def violations(kernel: str, name: str, folder: Path, cache: str) -> Iterator[str]:
    """What the verifier would report of a kernel's sources in `folder`."""
    keys = {"dtype": DTYPE_NUMBERS["fp16"], "cache": DTYPE_NUMBERS[cache], "head_dim": 64}
    if kernel == COMBINE:
        del keys["cache"]
    invocation = next(case for case in cases(kernel, keys) if case.name == name).make()
    launch = select(KERNELS[kernel], GFX908, invocation.values, override=SMALL, kernel_source=True)
    run_launch(launch, folder, invocation.memory())
    for output, expected in invocation.expected().items():
        tensor = invocation.outputs[output]
        yield from expected.compare(tensor.values()).violations(output)
        if not tensor.intact():
            yield f"elements outside of {output} were written"


@pytest.mark.parametrize(("kernel", "name"), sorted({fault[:2] for fault in FAULTS.values()}))
@pytest.mark.parametrize("cache", ["fp16", "fp8e5"])
def test_sound_sources_pass(kernel: str, name: str, cache: str) -> None:
    assert list(violations(kernel, name, FOLDER, cache)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    kernel, name, sound, faulty = FAULTS[fault]
    for source in FOLDER.glob("*.py"):
        shutil.copy(source, tmp_path)
    text = (tmp_path / "paged.py").read_text()
    assert sound in text
    (tmp_path / "paged.py").write_text(text.replace(sound, faulty))
    with contextlib.suppress(ExecutionError):  # an access outside of the tensors
        assert list(violations(kernel, name, tmp_path, "fp8e5"))


@pytest.mark.parametrize("name", ["splits", "window and splits", "a chunk of a prompt", LENGTHS])
def test_both_steps_on_one_scratch_memory_make_attention(name: str) -> None:
    """The scratch memory is NaN before, and what the first step leaves of it is never read."""
    keys = {"dtype": DTYPE_NUMBERS["fp16"], "cache": DTYPE_NUMBERS["fp16"], "head_dim": 64}
    problem = replace(dict(problems(keys))[name], sinks=True)
    numbers = problem.numbers()
    tensors = {x: problem.tensor(x, numbers[x], problem.used() if x in "KV" else None) for x in "QKV"}
    tensors |= problem.lists() | {x: problem.tensor(x) for x in ("Out", "L", "O_part", "L_part")}
    launches = run_operator(
        FAMILY,
        FOLDER,
        "paged_attn",
        target=GFX908,
        values={**problem.values(tensors), **keys},
        buffers={x: tensor.storage for x, tensor in tensors.items()},
        override=SMALL,
    )
    assert len(launches) == (2 if problem.splits > 1 else 1)
    expected = complete(problem)
    assert expected.out.misses(tensors["Out"].values()).max() <= 1
    assert expected.lse.misses(tensors["L"].values()).max() <= 1
