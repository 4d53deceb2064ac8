"""Images of tests/fixtures/kernels_options and calls of them on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.plan.model import CompileJob
from aotforge.verify.compare import unit_in_last_place
from aotforge.verify.interpreter.number_formats import DType, decode, encode
from tests.integration.vgpu.emulator.models.attention import (
    Arithmetic,
    Double,
    Sequence_,
    one_head,
    philox,
    uniform,
)
from tests.integration.vgpu.emulator.models.numbers import Array
from tests.support.families import PROJECT, architectures, plan_of
from vgpu.emulator.launch import LaunchRequest
from vgpu.emulator.program import Emulator
from vgpu.memory import Memory

ROOT = PROJECT / "tests" / "fixtures" / "kernels_options"
BATCH, HEADS, HEAD_DIM, SEED, P_DROP, SCALE = 2, 2, 32, 1234, 0.25, 0.17
NQ, NK = 40, 45
CU_Q, CU_K = (0, 33, 73), (0, 45, 56)
"""Of variable length: 33 and 40 queries on 45 and 11 keys."""
FACTOR = 2.0
"""How many times the error of the same computation in the same precision is allowed, beside one unit in the last place of the
largest value: the rule of `aotforge.verify`."""


Arguments = Mapping[str, Array | int | float]


class Images:
    """The kernels of these tests, compiled into `cache`."""

    def __init__(self, arch: str, cache: Path) -> None:
        self.arch, self._cache = arch, cache
        self._plan = plan_of(ROOT, arch=arch)
        self._emulator = Emulator(arch)
        self._made: dict[str, ImageSet] = {}

    def jobs(self, *parts: str) -> list[CompileJob]:
        """Jobs with hints whose label has all these parts."""
        return [j for j in self._plan.jobs if j.hints and all(part in j.label for part in parts)]

    def launch(
        self, job: CompileJob, grid: tuple[int, int, int], arguments: Arguments, schedule: int | None
    ) -> None:
        if job.key not in self._made:
            with Cache(self._cache) as cache:
                self._made[job.key] = compile_plan(
                    replace(self._plan, jobs=(job,)), kernels_root=ROOT, architectures=architectures(), cache=cache, jobs=1
                )  # fmt: skip
        image = self._made[job.key][job.key]
        names = [name for name, kind in job.signature if kind != "constexpr"]
        values = [arguments[name] for name in names]
        memory = Memory({n: v for n, v in zip(names, values, strict=True) if isinstance(v, np.ndarray)})
        self._emulator.load(image.binary, image.asm).launch(
            LaunchRequest(
                grid=grid,
                arguments=[v.ctypes.data if isinstance(v, np.ndarray) else v for v in values],
                memory=memory,
                lds_bytes=image.resources.dynamic_shared_bytes,
                schedule=schedule,
            )
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One attention call; results hold what no kernel writes where it must not."""

    dtype: DType
    variant: str
    scale: float = SCALE

    def has(self, option: str) -> bool:
        return self.variant in {option, "all"} or (option == "dropout" and self.variant == "dropout4")

    @cached_property
    def bounds(self) -> list[tuple[slice, slice]]:
        """Tokens of queries and keys of each sequence."""
        if self.has("varlen"):
            return [(slice(*CU_Q[z : z + 2]), slice(*CU_K[z : z + 2])) for z in range(BATCH)]
        return [(slice(z * NQ, (z + 1) * NQ), slice(z * NK, (z + 1) * NK)) for z in range(BATCH)]

    @cached_property
    def inputs(self) -> dict[str, Double]:
        """As the dtype has them."""
        rng = np.random.default_rng(3)
        tokens = {"Q": self.bounds[-1][0].stop, "K": self.bounds[-1][1].stop}
        shapes = {
            n: (tokens["Q" if n in {"Q", "DO"} else "K"], HEADS, HEAD_DIM) for n in ("Q", "K", "V", "DO")
        }
        shapes["B"] = (HEADS, NQ, NK)
        return {
            n: decode(encode(rng.standard_normal(shape), self.dtype), self.dtype)
            for n, shape in shapes.items()
        }

    @cached_property
    def kept(self) -> Array:
        plane = np.arange(BATCH * HEADS).reshape(BATCH, HEADS, 1, 1)
        rows = (plane * NQ + np.arange(NQ)[:, None]) * NK
        if not self.has("dropout"):
            return np.ones((BATCH, HEADS, NQ, NK), dtype=np.bool_)
        if self.variant != "dropout4":
            return np.asarray(
                uniform(philox((rows + np.arange(NK)).astype(np.uint32), SEED)[0]) >= np.float32(P_DROP)
            )
        words = philox((rows + np.arange(NK) // 4).astype(np.uint32), SEED)
        chosen = np.choose(
            np.arange(NK) % 4, [words[0], words[2], words[1], words[3]]
        )  # as the kernel joins them
        number = chosen.view(np.int32).astype(np.float32) * np.float32(2.0**-32) + np.float32(0.5)
        return np.asarray(number >= np.float32(P_DROP))

    def results(self, arithmetic: Arithmetic) -> dict[str, Double]:
        """Every output. Rows without keys have Out 0 and L infinite."""
        i = self.inputs
        found = {
            n: np.zeros(i[of].shape)
            for n, of in (("Out", "Q"), ("DQ", "Q"), ("DK", "K"), ("DV", "K"), ("DB", "B"))
        }
        found["L"] = np.zeros(i["Q"].shape[:2])
        p_drop = P_DROP if self.has("dropout") else 0.0
        for z, (q, k) in enumerate(self.bounds):
            nq, nk = q.stop - q.start, k.stop - k.start
            seen = (
                np.tri(nq, nk, dtype=np.bool_) if self.variant == "all" else np.ones((nq, nk), dtype=np.bool_)
            )
            for h in range(HEADS):
                bias = i["B"][h, :nq, :nk] if self.has("bias") else np.zeros((nq, nk))
                head = Sequence_(
                    q=i["Q"][q, h], k=i["K"][k, h], v=i["V"][k, h], do=i["DO"][q, h],
                    bias=bias, kept=self.kept[z, h, :nq, :nk], seen=seen,
                )  # fmt: skip
                one = one_head(head, float(np.float32(self.scale)), p_drop, arithmetic)
                for name, tokens in (("Out", q), ("L", q), ("DQ", q), ("DK", k), ("DV", k)):
                    found[name][tokens, h] = one[name]
                found["DB"][h, :nq, :nk] += one["DB"]
        return found

    def execute(self, images: Images, *, schedule: int | None = None) -> dict[str, Double]:
        """Forward, then backward from its results."""
        own = {n: np.ascontiguousarray(encode(x, self.dtype)) for n, x in self.inputs.items()}
        for n, of in (("Out", "Q"), ("DK", "K"), ("DV", "K")):
            own[n] = np.full_like(own[of], 0xFFFF if self.dtype == "bf16" else np.nan)
        own["L"] = np.full(self.inputs["Q"].shape[:2], np.nan, dtype=np.float32)
        own["DQ"], own["DB"] = (np.zeros(self.inputs[n].shape, dtype=np.float32) for n in ("Q", "B"))
        arguments: dict[str, Array | int | float] = {
            **own, "cu_q": np.array(CU_Q, dtype=np.int32), "cu_k": np.array(CU_K, dtype=np.int32), "heads": HEADS,
            "seqlen_q": NQ, "seqlen_k": NK, "scale": self.scale, "p_drop": P_DROP, "seed": SEED,
        }  # fmt: skip
        for kernel in ("forward", "backward"):
            (job,) = images.jobs(f"options.{kernel}:", f"dtype={self.dtype},variant={self.variant}:")
            images.launch(job, (2, HEADS, BATCH), arguments, schedule)
        single = {n: own[n].astype(np.float64) for n in ("L", "DQ", "DB")}
        return single | {n: decode(own[n], self.dtype) for n in ("Out", "DK", "DV")}


def misses(call: Call, found: Mapping[str, Double]) -> dict[str, float]:
    """Each output's largest error in multiples of what is allowed (`FACTOR`)."""
    reference = call.results(Arithmetic())
    peers = [call.results(Arithmetic(dtype=call.dtype, order=order)) for order in (1, 8)]
    worst = {}
    for name, value in reference.items():
        if name == "DB" and not call.has("bias"):
            continue
        dtype: DType = call.dtype if name in {"Out", "DK", "DV"} else "fp32"
        largest = float(np.abs(value[np.isfinite(value)]).max())
        allowed = FACTOR * max(_error(peer[name], value) for peer in peers) + unit_in_last_place(
            largest, dtype
        )
        worst[name] = _error(found[name], value) / allowed
    return worst


def _error(found: Double, value: Double) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(np.where(found == value, 0.0, np.abs(found - value)), nan=np.inf).max())
