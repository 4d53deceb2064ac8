"""Random calls of attention over pages by the library on a GPU or a virtual one, beside float64.

`python -m tests.device.paged_calls LIBRARY ARCH [COUNT] [--few] [--to WIDTH]` with images beside LIBRARY;
`--few`: of float16 and head_dim 64 alone, `--to`: up to head_dim WIDTH. The last line is the number of wrong
calls. Exit status 77: no device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np

from aotforge.errors import ExecutionError
from aotforge.rules import DTYPE_NUMBERS
from aotforge.targets.device_driver import Device
from aotforge.targets.installed import find_device
from aotforge.verify.compare import Bounded
from aotforge.verify.device.library import LibraryImage
from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.invocation import Invocation, LaunchCall
from aotforge.verify.tensors import Guarded, Layout
from kernels.flash_paged.operators import PAGED_ATTN, RESHAPE_AND_CACHE
from kernels.flash_paged.problems import Problem
from kernels.flash_paged.reference import Results, combined, complete, partial_results
from tests.device.calls import SKIPPED, show

WIDTHS = (64, 128, 256)
_CACHES: tuple[DType, ...] = ("i8", "fp8e4nv", "fp8e5")
_STRIDES = {"K_new": "nm nh", "V_new": "wm wh", "K": "kp kn kh", "V": "vp vn vh"}


def drawn(number: int, *, few: bool = False, widths: Sequence[int] = WIDTHS) -> Problem:
    """The call of a number. Half of all caches have the queries' type, half of all calls several splits."""
    rng = Random(number)
    dtype: DType = "fp16" if few else rng.choice(("fp16", "bf16"))
    batch = rng.choice((1, 2, 3))
    return Problem(
        dtype=dtype, cache=dtype if few or rng.random() < 0.5 else rng.choice(_CACHES),
        head_dim=64 if few else rng.choice(widths),
        queries=tuple(rng.choice((1, 1, 1, 2, 5, 0, 21)) for _ in range(batch)),
        keys=tuple(rng.choice((0, 1, rng.randrange(30), rng.randrange(150))) for _ in range(batch)),
        heads_k=rng.choice((1, 2)), group=rng.choice((1, 2, 7, 8)), page_size=rng.choice((16, 32, 48, 256)),
        split_keys=rng.choice((None, None, 16, 32, 48, 64)), causal=rng.random() < 0.5,
        window_left=rng.choice((-1, -1, rng.randrange(60))), softcap=rng.choice((0.0, 0.0, 5.0)),
        sinks=rng.random() < 0.3, lse=rng.random() < 0.7, sm_scale=rng.choice((0.125, 0.25)),
        heads_outside=rng.random() < 0.3, padding=rng.choice((0, 16)), scale_heads=rng.random() < 0.5,
    )  # fmt: skip


def expected(problem: Problem) -> Results:
    """Of a complete call. Errors of splits move their weights, those of combining them are added."""
    if problem.splits == 1:
        return complete(problem)
    parts = partial_results(problem)
    made = combined(problem, parts.out.value, parts.lse.value)
    empty = np.isinf(made.lse.value)
    weights = np.exp(parts.lse.value - np.where(empty, 0.0, made.lse.value)[..., None])[..., None]
    moved = parts.lse.error.max(axis=2)
    error = parts.out.error + 2 * moved[..., None, None] * np.abs(parts.out.value)
    return Results(
        out=Bounded(value=made.out.value, error=made.out.error + (weights * error).sum(axis=2)),
        lse=Bounded(value=made.lse.value, error=made.lse.error + moved),
    )


class Libraries:
    """Both operators of one library on a device."""

    def __init__(self, device: Device, library: Path) -> None:
        images = library.parent / "aotriton.images"
        operators = (PAGED_ATTN, RESHAPE_AND_CACHE)
        self._by_operator = {one.name: LibraryImage(device, library, images, one) for one in operators}

    def _run(
        self,
        name: str,
        values: Mapping[str, float],
        inputs: Mapping[str, Guarded],
        outputs: Mapping[str, Guarded],
    ) -> None:
        invocation = Invocation(values=values, inputs=inputs, outputs=outputs, expected=dict)
        # the library finds image and grid
        unused = cast(Any, None)
        self._by_operator[name].run(LaunchCall(use=unused, launch=unused, invocation=invocation, case=name))

    def share(self, problem: Problem) -> float:
        """The largest error of a call as a share of its bound.

        Raises ExecutionError, also for memory beside an output that was written.
        """
        numbers, lists = problem.numbers(), problem.lists()
        inputs = lists | {"Q": problem.tensor("Q", numbers["Q"])}
        inputs |= {name: problem.tensor(name, numbers[name], problem.used()) for name in "KV"}
        results = {"Out": problem.tensor("Out")} | ({"L": problem.tensor("L")} if problem.lse else {})
        scratch = ("O_part", "L_part") if problem.splits > 1 else ()
        outputs = results | {name: problem.tensor(name) for name in scratch}
        self._run("paged_attn", problem.values(inputs | outputs) | keys_of(problem), inputs, outputs)
        for name, tensor in outputs.items():
            if not tensor.intact():
                raise ExecutionError(f"memory beside {name} was written")
        wanted = expected(problem)
        bounds = {"Out": wanted.out, "L": wanted.lse}
        return max(float(bounds[x].misses(t.values()).max(initial=0.0)) for x, t in results.items())

    def write(self, problem: Problem, count: int) -> str:
        """Writes the last `count` keys of each sequence into pages that lack them; what is wrong, or ''."""
        rows = [problem.rows(z) for z in range(len(problem.keys))]
        pages, places = (np.concatenate([row[i][-count:] for row in rows]) for i in (0, 1))
        new = np.zeros(problem.used().shape, dtype=np.bool_)
        new[pages, places] = True
        numbers, tokens = problem.numbers(), len(pages)
        caches = {name: problem.tensor(name, numbers[name], problem.used() & ~new) for name in "KV"}
        before = {name: tensor.bits().copy() for name, tensor in caches.items()}
        inputs = {name: x for name, x in problem.lists().items() if name.endswith("_scale")}
        slots = pages * problem.page_size + places
        inputs["slots"] = Guarded((tokens,), "i64", Layout(), slots.astype(np.int64))
        for name, scale in zip("KV", problem.scales, strict=True):
            x = decode(encode(numbers[name][pages, places] * scale[:, None], problem.dtype), problem.dtype)
            layout = Layout(row_padding=problem.padding)
            inputs[f"{name}_new"] = Guarded(np.shape(x), problem.dtype, layout, np.asarray(x))
        values: dict[str, float] = {"tokens": tokens, "num_head_k": problem.heads_k, **keys_of(problem)}
        values |= {"page_size": problem.page_size, "stride_scale": int(problem.scale_heads)}
        for name, axes in _STRIDES.items():
            strides = (inputs | caches)[name].strides
            values |= {f"stride_{axis}": n for axis, n in zip(axes.split(), strides, strict=False)}
        values |= {name: tensor.address for name, tensor in (inputs | caches).items()}
        self._run("reshape_and_cache", values, inputs, caches)
        for name, tensor in caches.items():
            written, full = tensor.bits(), problem.tensor(name, numbers[name]).bits()
            if not np.array_equal(written[pages, places], full[pages, places]):
                return f"{name} has other numbers than were written"
            written[pages, places] = before[name][pages, places]
            if not tensor.unchanged():
                return f"{name}: memory of other keys was written"
        return ""


def keys_of(problem: Problem) -> dict[str, int]:
    """Values that select the images."""
    kinds = {name: DTYPE_NUMBERS[kind] for name, kind in (("dtype", problem.dtype), ("cache", problem.cache))}
    return {**kinds, "head_dim": problem.head_dim}


def wrong_calls(libraries: Libraries, problems: Iterable[Problem], shares: list[float]) -> Iterator[str]:
    """Texts of wrong calls; appends the others' shares of their bounds. Every fourth writes keys first."""
    for number, problem in enumerate(problems):
        try:
            text = libraries.write(problem, 1 + number % 5) if number % 4 == 0 and any(problem.keys) else ""
            share = libraries.share(problem) if not text else 0.0
        except ExecutionError as error:
            text, share = str(error), 0.0
        if not share <= 1:
            text = f"the error is {share:.3g} times its bound"
        if text:
            yield f"WRONG {number}: {problem}: {text}"
        else:
            shares.append(share)


def main(library: Path, arch: str, count: int, *, few: bool, to: int) -> int:
    """1 when a call is wrong."""
    device, reason = find_device(arch)
    if device is None:
        show(f"skipped: {reason}")
        return SKIPPED
    shares = [0.0]
    widths = [width for width in WIDTHS if width <= to]
    calls = (drawn(number, few=few, widths=widths) for number in range(count))
    wrong = list(wrong_calls(Libraries(device, library), calls, shares))
    for line in wrong:
        show(line)
    show(f"{device}: {count} calls, {len(wrong)} wrong, largest error {max(shares):.3f} of its bound")
    return int(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("arch")
    parser.add_argument("count", type=int, nargs="?", default=500)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--to", type=int, default=max(WIDTHS))
    given = parser.parse_args()
    sys.exit(main(given.library, given.arch, given.count, few=given.few, to=given.to))
