"""A sample of each campaign by default, all of it among the slow tests: no fault that the reference can
distinguish passes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.campaigns.barriers import remove_each
from tests.campaigns.bit_flips import IMAGE, Flip, flips, image_of
from tests.campaigns.reach import unreached_of
from tests.campaigns.subjects import (
    ATTENTION,
    calls_of,
    execute,
    labelled,
    of_each,
    subjects,
    try_calls,
    wrong,
)
from tests.support.disassembly import OBJDUMP, find_objdump
from tests.support.runtime import CACHE

pytestmark = pytest.mark.compiler
needs_objdump = pytest.mark.skipif(
    find_objdump() is None, reason=f"{OBJDUMP} is not installed (Debian package llvm-22)"
)
SMALL = "flash.bwd_preprocess:{}:dtype=fp16,width=32:0"
ARCHS = ("gfx908", "gfx1100", "gfx1201")
"""One of each way to wait and to meet at a barrier."""
SWEPT = (*ARCHS, "gfx906", "gfx1030")
"""And those without matrix instructions."""
UNSEEN = {"refused", "fault", "wrong", "within", "equal", "unused", "identical"}


def assert_classified(done: list[Flip], count: int) -> None:
    assert len({flip.bit for flip in done}) == count > 0
    assert all(flip.refused_by_assembly for flip in done)
    assert {flip.kind for flip in done} <= UNSEEN
    # an instruction that no call reaches cannot change anything, one that changed numbers is reached
    assert all(flip.executed for flip in done if flip.kind in {"wrong", "within", "equal", "unused"})
    assert all(flip.growth <= 2 for flip in done if flip.kind == "within")


@needs_objdump
def test_flipped_bits_are_refused_by_the_assembly_check_and_classified_without_it() -> None:
    done = list(flips(IMAGE, CACHE, seed=1, count=8, jobs=1))
    assert_classified(done, 8)
    assert {"refused", "wrong"} <= {flip.kind for flip in done}


@needs_objdump
@pytest.mark.parametrize("arch", ARCHS[1:])
def test_flipped_bits_of_other_archs(arch: str) -> None:
    done = list(flips(SMALL.format(arch), CACHE, seed=1, count=4, jobs=1))
    assert_classified(done, 4)
    assert {flip.kind for flip in done} != {"refused"}


@pytest.mark.parametrize("arch", ARCHS)
def test_removed_barriers_are_caught(arch: str) -> None:
    (subject,) = subjects(arch, lambda label: label == SMALL.format(arch), CACHE)
    done = remove_each(subject)
    assert done and all(removal.executed and removal.caught for removal in done)


def test_an_image_that_is_not_altered_is_right_in_every_way() -> None:
    (subject,) = subjects("gfx908", lambda label: label == SMALL.format("gfx908"), CACHE)
    program = subject.load(subject.image.binary)
    calls, executed = calls_of(subject, program, (None, 1))
    same = subject.altered(program.listing)
    for checks in (False, True):
        assert try_calls(same, subject, calls, checks=checks).kind == "identical"
    assert calls and executed == {line.address for line in program.listing.lines}
    # the campaign itself can fail: one output of the last call is changed by hand
    execute(same, subject, calls[-1])
    output = next(iter(calls[-1].invocation.outputs.values()))
    assert wrong(calls[-1]) == []
    output.bits()[..., :1] ^= 1 << 22
    assert wrong(calls[-1]) != []


@pytest.mark.slow
@needs_objdump
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("arch", SWEPT)
def test_five_hundred_flipped_bits(arch: str) -> None:
    done = list(flips(image_of(arch), CACHE, seed=908, count=500, jobs=2))
    assert_classified(done, 500)
    assert {"refused", "fault", "wrong"} <= {flip.kind for flip in done}
    print(Counter(flip.kind for flip in done))  # noqa: T201 - shown with -s


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("arch", [*SWEPT, "gfx942"])
def test_every_barrier_removed(arch: str) -> None:
    every = of_each(remove_each, arch, labelled(ATTENTION, ""), CACHE, 2)
    done = [removal for found in every for removal in found if removal.executed]
    assert done
    caught = sum(removal.caught for removal in done)
    print(f"{arch}: {caught} of {len(done)} barriers caught")  # noqa: T201 - shown with -s
    # the others order nothing: no two waves touch the same bytes of LDS around them, in any call and schedule
    assert all(removal.caught or removal.kind == removal.checked == "identical" for removal in done)
    # without matrix instructions a product takes its operands from LDS in pieces, with more barriers than it
    # needs
    assert caught >= (0.97 if arch in {*ARCHS, "gfx942"} else 0.6) * len(done)


def test_verification_executes_every_access_and_product() -> None:
    (subject,) = subjects("gfx908", lambda label: label == SMALL.format("gfx908"), CACHE)
    found = unreached_of(subject)
    assert found.instructions > 100
    assert found.work == ()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("arch", SWEPT)
def test_verification_executes_every_access_and_product_of_every_image(arch: str) -> None:
    found = list(of_each(unreached_of, arch, labelled(ATTENTION, ""), CACHE, 2))
    assert len(found) > 60
    assert {one.label: one.work for one in found if one.work} == {}
