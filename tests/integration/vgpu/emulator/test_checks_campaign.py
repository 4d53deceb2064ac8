"""Waits of a real attention kernel altered one at a time: each is caught, or a second model agrees that it is
not needed."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.campaigns.replay import Replay
from tests.campaigns.subjects import ATTENTION, Subject, calls_of, execute, subjects
from tests.campaigns.waits import CHECKS, alter_each, altered_listings
from vgpu.cache import default_cache
from vgpu.emulator.program import Program

pytestmark = pytest.mark.compiler
ENDS = {"dtype=fp16,width=32:", "dtype=fp16,dropout=false,mask=window,width=32:"}


def _subject(kernel: str, arch: str = "gfx908") -> Subject:
    def wanted(label: str) -> bool:  # bwd_preprocess has one image for both masks
        return f".{kernel}:" in label and any(end in label for end in ENDS)

    return next(iter(subjects(arch, wanted, default_cache())))


@pytest.fixture(scope="module")
def forward() -> tuple[Subject, Program]:
    subject = _subject("attn_fwd")
    return subject, subject.load(subject.image.binary)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_waits_of_other_counters(arch: str) -> None:
    done = alter_each(_subject("bwd_preprocess", arch), every=2)
    assert len(done) >= 5
    assert {one.kind for one in done} <= {"caught", "redundant"}
    assert sum(one.kind == "caught" for one in done) > len(done) / 2


def test_a_sample_of_waits_and_both_models_agree(forward: tuple[Subject, Program]) -> None:
    """Every eighth alteration on one call: what the checks stop, the second model objects to, and every
    register that it objects to stops the checks. An LDS access outstanding at a barrier is only a fault when
    another wave touches the same bytes.
    """
    subject, program = forward
    calls, _ = calls_of(subject, program, (None,))
    call = sorted(calls, key=lambda one: one.limit)[len(calls) // 2]
    caught = 0
    for number, (_, line, listing) in enumerate(altered_listings(program.listing)):
        if number % 8:
            continue
        altered, replay = subject.altered(listing), Replay()
        execute(altered, subject, call, trace=replay.step)
        try:
            execute(altered, subject, call, checks=CHECKS)
            assert [found for found in replay.violations if " after " in found] == [], line.location
        except ExecutionError as error:
            caught += 1
            assert replay.violations, f"{line.location}: {error}"
    assert caught >= 8


def test_the_checks_change_no_result(forward: tuple[Subject, Program]) -> None:
    subject, program = forward
    calls, _ = calls_of(subject, program, (None,))
    assert calls
    for call in calls:
        plain = execute(program, subject, call)
        checked = execute(program, subject, call, checks=True)
        assert checked.counts == plain.counts
        for name, tensor in call.invocation.outputs.items():
            assert np.array_equal(tensor.storage.view(np.uint8), call.right[name].view(np.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx908", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("kernel", ATTENTION)
def test_every_wait_of_a_kernel(kernel: str, arch: str) -> None:
    done = alter_each(_subject(kernel, arch))
    assert done
    assert [one for one in done if one.kind == "missed"] == []
    assert sum(one.kind == "caught" for one in done) > len(done) / 2
