"""Answers of verification workers: what was sent arrives, with the task's own names."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.compile.model import Resources
from aotforge.errors import AotforgeError, CacheError, RulesError, ToolchainError
from aotforge.verify.answers import read_answer, write_answer
from aotforge.verify.verdict import ImageTask, OutputStats, Verdict

RESOURCES = Resources(
    registers=8, accumulation_registers=0, scalar_registers=8, spilled_registers=0, spilled_scalar_registers=0, scratch_bytes=0,
    shared_bytes=0, dynamic_shared_bytes=0, warp_size=64, num_warps=4, threads=256, occupancy=8,
)  # fmt: skip
TASK = ImageTask(
    key="key", label="add/one", arch="gfx908", digest="ab", binary=b"", asm="", resources=RESOURCES, folder="add",
    verifier_digest="cd", uses=(),
)  # fmt: skip
STATS = OutputStats(name="out", tensor=0.5, element=math.inf, tile=0.0, error=1e-30, allowed=2.0, at="one")
PASSED = replace(
    Verdict.failed(TASK, ""), outcome="passed", cases=("one", "two"), runs=4, outputs=(STATS,), instructions=9,
    mix=(("valu", 9),), approximated=(("v_exp_f32", "last place"),), printed=("a\x1b",), texts=1, seconds=0.25,
)  # fmt: skip


def altered(**fields: object) -> bytes:
    """An answer with other fields."""
    return json.dumps({"verdict": json.loads(write_answer(PASSED))["verdict"] | fields}).encode()


def test_a_verdict_arrives_as_it_was_sent() -> None:
    assert read_answer(write_answer(PASSED), TASK) == PASSED


def test_names_and_digests_are_the_tasks() -> None:
    other = replace(
        PASSED, key="x", label="y", digest="z", verifier_digest="v", skipped=True, cached=True,
        resources=replace(RESOURCES, threads=1),
    )  # fmt: skip
    assert read_answer(write_answer(other), TASK) == PASSED


@pytest.mark.parametrize(
    "error",
    [CacheError("full", cause="a", hint="b"), RulesError("line 3"), ToolchainError("no Triton")],
)
def test_errors_arrive_with_their_kind(error: AotforgeError) -> None:
    found = read_answer(write_answer(error), TASK)
    assert type(found) is type(error) and str(found) == str(error)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x05",
        b"[]",
        b"1",
        b"{}",
        b'{"verdict": {"outcome": "passed"}}',
        b'{"error": {"kind": "cache"}}',
        b'{"error": {"kind": "usage", "what": "", "cause": "", "hint": ""}}',
        b'{"error": 1}',
        b"[" * 100_000,
        altered(outcome="true"),
        altered(runs=[1]),
    ],
)
def test_what_is_no_verdict_ends_the_worker(data: bytes) -> None:
    with pytest.raises(ValueError, match="without a verdict"):
        read_answer(data, TASK)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        read_answer(data, TASK)
