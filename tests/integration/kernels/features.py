"""Attention problems with every feature, small enough for the interpreter, and faults planted in the kernels'
sources.

The problems are acceptance cases of PyTorch and defects of other libraries; the comparison is the verifier's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from aotforge.errors import ExecutionError
from aotforge.rules import Scalar
from aotforge.verify.invocation import Invocation
from aotforge.verify.tensors import Layout
from kernels.flash.call import BOTTOM_RIGHT, TOP_LEFT, Bias, Case, Dropout
from kernels.flash.cases import invocation_of
from kernels.flash.rules import FAMILY
from kernels.flash.sequences import LseLayout, Varlen
from tests.integration.kernels.attention_call import FOLDER, GFX908
from tests.support.source_launches import run_launch, select

KERNELS = {kernel.name: kernel for kernel in FAMILY.kernels}
SMALL = {"BLOCK_M": 16, "BLOCK_N": 16}
IN_PARTS = {**SMALL, "PART": 16, "PIECE": 16, "HOLD": False}
WIDER, SPARE = Layout(row_padding=5), Layout(spare_rows=3)
BASE = Case(dtype="fp32", heads_q=2, heads_k=1, seqlen_q=37, seqlen_k=43, head_dim=16, sm_scale=0.2)
LENGTHS = Varlen(word=0x0B0B, queries=(13, 0, 20, 1), keys=(20, 9, 0, 33), gap=3)
SEVERAL = replace(BASE, batch=4, seqlen_q=23, seqlen_k=35)
PROBLEMS = {
    "narrower than the image": replace(BASE, head_dim=7, head_dim_v=13, layout=WIDER),
    "several pieces": replace(BASE, head_dim=72, head_dim_v=80, seqlen_q=20, seqlen_k=20, layout=WIDER),
    "wide": replace(BASE, head_dim=203, head_dim_v=24, seqlen_q=17, seqlen_k=20, layout=WIDER),
    "window": replace(BASE, window_left=3, window_right=5),
    "window above the diagonal": replace(BASE, window_left=-2, window_right=4),
    "window below the diagonal": replace(BASE, window_left=9, window_right=-4),
    "window and many keys": replace(BASE, seqlen_q=20, seqlen_k=90, window_left=30, window_right=-25),
    "window and many queries": replace(BASE, seqlen_q=90, seqlen_k=20, window_left=30, window_right=0),
    "bias": replace(BASE, bias=Bias()),
    "masking bias": replace(BASE, bias=Bias(kind="masked", broadcast=(1,))),
    "lowest bias": replace(BASE, dtype="bf16", bias=Bias(kind="lowest", broadcast=(0, 1))),
    "bias, one key": replace(BASE, seqlen_k=1, bias=Bias(kind="lowest")),
    "bias, scale 0": replace(BASE, seqlen_k=17, sm_scale=0.0, bias=Bias(broadcast=(0, 1, 2))),
    "dropout": replace(BASE, batch=2, dropout=Dropout()),
    "dropout of everything": replace(BASE, dropout=Dropout(p=1.0)),
    "dropout and bias": replace(BASE, dropout=Dropout(p=0.5, offset1=3, offset2=2**33), bias=Bias()),
    "low scores": replace(BASE, seqlen_q=64, seqlen_k=72, draw="low"),
    "causal": Case(seqlen_q=70, seqlen_k=60, heads_q=2, window_right=-10, layout=SPARE),
    "grouped": Case(seqlen_q=37, seqlen_k=45, heads_q=4, heads_k=2, layout=SPARE),
    "strides apart": replace(BASE, heads_q=3, batch=2, mixed=True),
    "0.11's rows of L": replace(SEVERAL, varlen=replace(LENGTHS, lse="rows")),
    "dropout of packed sequences": replace(SEVERAL, dropout=Dropout(), varlen=LENGTHS),
    "packed, top-left": replace(SEVERAL, window_left=TOP_LEFT, window_right=TOP_LEFT, varlen=LENGTHS),
}  # fmt: skip
WORDS: tuple[tuple[int, LseLayout], ...] = (
    (0x0B0B, "HT"), (0x0202, "HT"), (0x1313, "TH"), (0x000B, "HT"), (0x150B, "HT"), (0x040B, "TH"),
)  # fmt: skip
for word, lse in WORDS:
    PROBLEMS[f"{word:#06x}"] = replace(
        SEVERAL, window_left=24, window_right=BOTTOM_RIGHT, varlen=replace(LENGTHS, word=word, lse=lse)
    )


def scores(case: Case) -> int:
    """Of all heads. Each has an error of its own, which every column of its row of Out shares."""
    q, k = np.zeros(case.shape("Q")), np.zeros(case.shape("K"))
    shapes = ((part.of("Q", q).shape, part.of("K", k).shape) for part in case.parts())
    return sum(of_q[0] * of_q[1] * of_q[2] * of_k[2] for of_q, of_k in shapes)


def violations(
    kernel: str,
    call: Case | Invocation,
    folder: Path = FOLDER,
    override: Mapping[str, Scalar] = SMALL,
    least: int = 0,
) -> Iterator[str]:
    """What the verifier would report of a kernel's sources in `folder`.

    Outputs of fewer elements than `least`, and all of a call with fewer scores, need only be within the bound
    of each element: of so few sums the largest error in the same precision is often far below that of another
    order of additions.
    """
    invocation = invocation_of(kernel, call) if isinstance(call, Case) else call
    few = isinstance(call, Case) and scores(call) < least
    launch = select(KERNELS[kernel], GFX908, invocation.values, override=override, kernel_source=True)
    run_launch(launch, folder, invocation.memory())
    expected = invocation.expected()
    for name, tensor in invocation.outputs.items():
        found = expected[name].compare(tensor.values())
        if not (few or np.isfinite(found.value).sum() < least) or found.element > 1:
            yield from found.violations(name)
        if not tensor.intact():
            yield f"elements outside of {name} were written"
    yield from (f"{name} was written" for name, tensor in invocation.inputs.items() if not tensor.unchanged())


def planted(folder: Path, file: str, sound: str, faulty: str) -> None:
    """The kernels' sources in `folder`, one text of a file replaced."""
    for source in FOLDER.glob("*.py"):
        shutil.copy(source, folder)
    text = (folder / file).read_text()
    assert sound in text
    (folder / file).write_text(text.replace(sound, faulty))


def is_found(
    kernel: str, call: Case | Invocation, folder: Path, override: Mapping[str, Scalar] = SMALL
) -> bool:
    """True when a fault in the sources changes a result or accesses what it must not."""
    try:
        return bool(list(violations(kernel, call, folder, override)))
    except ExecutionError:
        return True
