"""docs/attention.md: the calls of attention that each arch serves, generated from the plan.

`python -m aotforge.devtools.attention_page` writes it again after a change of rules or settings; a test compares.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.base.general_costs import GeneralCosts, load_general_costs
from aotforge.plan.gates import missing_calls
from aotforge.plan.model import Plan, PlannedKernel
from aotforge.plan.planner import plan_project
from aotforge.rules import GENERAL_SUFFIX
from kernels.flash.gates import GATES

PAGE = Path("docs", "attention.md")
"""Below the checkout."""

ARCHS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
_DTYPES = {1: "fp32", 2: "fp16", 3: "bf16"}
_MASKS = {0: "full", 1: "window", 2: "bias"}
_HEAD = """\
# Attention

This page is generated: `python -m aotforge.devtools.attention_page`.
Every profile but `smoke` serves every call of the interface on each arch: by special images where the profile
has them, else by general ones.
`./dev coverage RELEASE` prints what a built release has; `--calls LOG` tells for a program's calls which it is.
The interface is described in [runtime.md](runtime.md), API levels in [compatibility.md](compatibility.md).

## What decides over a call

| property | values of the interface | special images | general images |
|---|---|---|---|
| dtype | fp16, bf16, fp32; the same for all tensors | one each | one each |
| head_dim | 1 to 512, that of V may differ | the next compiled width at or above both | a value of the kernel |
| mask | none; window (causal is one); bias | one each | window; none and bias |
| dropout | off, on | one each | a branch in the kernel |
| variable length | compact, padded, strided, `VarlenBits` | a branch in the kernel | the same |
| heads | those of K divide those of Q | a value of the kernel | the same |
| strides, alignment | any, last stride 1 | conditions, and one without | a branch in the kernel |

## General images

A general image stands last in the ladder of every functional: it takes the calls that the profile has no
special image for.
It computes scores 32 columns of a head at a time and makes 64 or 128 columns of the results in a program, so it
has no more registers for head_dim 512 than for 64.

## Dropout

An element is kept or not by the seed, the sum of both offsets, its sequence, head, row and column.
Forward, backward and `debug_simulate_encoded_softmax` agree, dense or packed, on every arch.
Masks differ from those of AOTriton, which change between its releases.
The generator is Philox-4x32 with seven rounds, which pass the same statistical tests as ten.
Each element takes 16 bits, so the probability is exact to 1/65536; what is kept is scaled by 1 / (1 - p).
Above 0 and below 1, p is at least 1/65536 and at most 65535/65536.

## Few queries

fp16 and bf16 calls of at most 16 queries, aligned and of a compiled head_dim up to 128 (gfx11: 64), without
bias and dropout, pack the query heads that share a head of K: one block of 16 rows takes them all.
K and V are read once for 16, 8, 4, 2 or 1 heads at 1, 2, 4, 8 or 16 queries.

## What is refused

| call | result |
|---|---|
| bias together with a causal mask or window | hipErrorNotSupported, named in the log |
| bias with variable length | hipErrorNotSupported |
| ALiBi slopes (`A`) | hipErrorNotSupported |
| `v2::attn_bwd_fused`, `v3::aiter_bwd` | hipErrorNotSupported |
| another back end than -1 and 0 | hipErrorNotSupported |
| `L` or `D` too small for its layout | hipErrorInvalidValue |
| malformed `cu_seqlens`, `VarlenBits`, `causal_type` | hipErrorInvalidValue |
| params of another version | hipErrorInvalidSymbol |
| no image for the call | hipErrorNotSupported |

All of it is refused before a buffer is acquired or a kernel is launched.
"""


def attention_page(root: Path) -> str:
    """The page's text for a checkout. Raises what planning raises."""
    plans = {arch: plan_project(root, archs=[arch], profile="full") for arch in ARCHS}
    kernels = {arch: [k for k in plan.kernels if k.family == "flash"] for arch, plan in plans.items()}
    default = {arch: plan_project(root, archs=[arch]) for arch in ARCHS}
    costs = load_general_costs(root / "manifests")
    lines = [_HEAD.rstrip("\n"), "", "## Images by arch", ""]
    lines += ["Attention's images; the complete profile has a special one for every call.", ""]
    lines += _table(_images(default, plans))
    lines += ["", "## What general images cost", ""]
    lines += [
        "Estimated cycles of general images as multiples of those of the complete profile's special ones: one head,",
        "256 queries and keys, by the model of `./dev cost` (`python -m benchmarks.general_images`).",
        "None is timed on hardware.",
        "",
    ]
    lines += _table(_costs(costs))
    lines += [
        "",
        "## Head dims by arch",
        "",
        "Widths of special images in the complete profile; a call takes the next one at or above its head_dims.",
        "",
    ]
    lines += _table(_widths(kernels))
    lines += ["", "## PyTorch's gates by arch", ""]
    lines += [
        "Of the default profile. Where a gate is not served, as by profile `smoke` and with `--only`, `check_gpu` fails",
        "without `AOTFORGE_PARTIAL_PACK=1`.",
        "",
    ]
    lines += _table(
        _gates({arch: [k for k in plan.kernels if k.family == "flash"] for arch, plan in default.items()})
    )
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in body)


def _widths(kernels: Mapping[str, Sequence[PlannedKernel]]) -> list[list[str]]:
    """A row per kernel and functional without the width; widths that every arch has are written once."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for arch, planned in kernels.items():
        for kernel in planned:
            for functional in kernel.functionals:
                call = dict(zip(kernel.keys, functional.key, strict=True))
                width = call.pop("width", 0)
                row = found.setdefault((kernel.name, _call_text(call)), {})
                row.setdefault(arch, []).append(width)
    rows = [["kernel", "call", "widths", "except"]]
    for (name, text), by_arch in sorted(found.items()):
        largest = max(by_arch.values(), key=len)
        less = [
            f"{arch}: {' '.join(str(w) for w in largest if w not in by_arch.get(arch, []))}"
            for arch in ARCHS
            if by_arch.get(arch) != largest
        ]
        widths = " ".join(map(str, largest)) if any(largest) else "any"
        rows.append([name, text, widths, "; ".join(less) or "-"])
    return rows


def _call_text(call: Mapping[str, int]) -> str:
    words = []
    for key, number in call.items():
        names = {"dtype": _DTYPES, "mask": _MASKS, "dropout": {0: "", 1: "dropout"}}.get(key, {})
        words.append(names.get(number, f"{key} {number}"))
    return " ".join(word for word in words if word)


def _images(default: Mapping[str, Plan], full: Mapping[str, Plan]) -> list[list[str]]:
    rows = [["arch", "default: special", "general", "`--profile full`"]]
    for arch, plan in default.items():
        jobs = [job for job in plan.jobs if job.family == "flash"]
        general = sum(job.function.endswith(GENERAL_SUFFIX) for job in jobs)
        complete = sum(job.family == "flash" for job in full[arch].jobs)
        rows.append([arch, str(len(jobs) - general), str(general), str(complete)])
    return rows


def _costs(costs: GeneralCosts) -> list[list[str]]:
    """A row per call, a column per arch with estimates."""
    archs = [arch for arch in ARCHS if costs.of(arch)]
    found: dict[str, dict[str, float]] = {}
    for row in costs.costs:
        found.setdefault(row.call(), {})[row.arch] = row.multiple
    rows = [["call", *archs]]
    for call, by_arch in found.items():
        rows.append([call, *(f"{by_arch[arch]:.1f}" if arch in by_arch else "-" for arch in archs)])
    return rows


def _gates(kernels: Mapping[str, Sequence[PlannedKernel]]) -> list[list[str]]:
    """Yes, or the first kind of calls that is missing."""
    rows = [["API level", "arch", "served"]]
    for gate in GATES:
        texts: dict[str, list[str]] = {}
        for arch, planned in kernels.items():
            missing = next(missing_calls(gate, planned, arch), "")
            text = f"no: {missing}"[:60] if missing else "yes"
            texts.setdefault(text, []).append(arch)
        rows += [[gate.name, " ".join(archs), text] for text, archs in texts.items()]
    return rows


if __name__ == "__main__":
    _root = Path(__file__).resolve().parents[2]
    write_atomic(_root / PAGE, attention_page(_root).encode())
    sys.stdout.write(f"{PAGE}\n")
