"""Times of waves by the model: hand-computed sequences of instructions, several waves on a SIMD, blocks and
paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.devtools.cost.simd import durations
from aotforge.devtools.cost.steps import LOCAL, MATRIX, MEMORY, NONE, SCALAR, VECTOR, Step
from aotforge.devtools.cost.timeline import Paths, block_starts, timeline
from vgpu.emulator import effects as waits
from vgpu.emulator.decoded import Line

ADD = Step(unit=VECTOR, issue=4, busy=4)
EXP = Step(unit=VECTOR, issue=16, busy=16)
LOAD = Step(unit=MEMORY, issue=4, shared=16, latency=320, counter=waits.LOADS)
SPILL = Step(unit=MEMORY, issue=4, shared=16, latency=142, counter=waits.LOADS)
READ = Step(unit=LOCAL, issue=4, shared=8, latency=64, counter=waits.LOCAL)
BARRIER = Step(unit=NONE, issue=4, barrier=True)
BRANCH = Step(unit=SCALAR, issue=4, busy=4, taken=28)


def wait(counter: int, most: int = 0) -> Step:
    return Step(unit=NONE, issue=4, waits=((counter, most),))


def product(*, result: int, sums: tuple[int, ...] = (), needs: tuple[int, ...] = ()) -> Step:
    return Step(unit=MATRIX, issue=4, busy=32, latency=12, results=(result,), sums=sums, needs=needs)


def alone(*steps: Step, sharing: float = 1) -> float:
    (found,) = durations([[[steps]]], sharing=sharing)
    return found


# ---- one wave ----


def test_a_load_that_was_issued_ahead_is_not_waited_for() -> None:
    work = [ADD] * 100
    late = alone(LOAD, wait(waits.LOADS), *work)
    ahead = alone(LOAD, *work, wait(waits.LOADS))
    assert late == 16 + 320 + 4 + 400  # issued at 0, its data after 16 cycles of the unit and the latency
    assert ahead == 4 + 400 + 4


def test_a_wait_counts_operations_in_their_order() -> None:
    assert alone(LOAD, LOAD, wait(waits.LOADS, 1)) == 16 + 320 + 4
    assert alone(LOAD, LOAD, wait(waits.LOADS)) == 32 + 320 + 4  # the unit takes them one after another
    assert alone(LOAD, wait(waits.LOCAL)) == 8  # another counter
    assert alone(SPILL, LOAD, wait(waits.LOADS, 1)) == 16 + 142 + 4
    assert alone(LOAD, SPILL, wait(waits.LOADS)) == 16 + 320 + 4  # nothing overtakes


def test_a_shared_unit_takes_longer_when_other_simds_use_it() -> None:
    assert alone(READ, wait(waits.LOCAL)) == 8 + 64 + 4
    assert alone(READ, wait(waits.LOCAL), sharing=4) == 32 + 64 + 4


def test_products_of_one_sum_follow_each_other_and_others_wait_for_the_result() -> None:
    sums = [product(result=0, sums=(0,)) for _ in range(4)]
    assert alone(*sums) == 3 * 32 + 4
    apart = [product(result=number) for number in range(4)]
    assert alone(*apart) == 3 * 32 + 4
    assert alone(product(result=0), product(result=1, needs=(0,))) == 32 + 12 + 4
    use = Step(unit=VECTOR, issue=4, busy=4, needs=(0,))
    assert alone(product(result=0), ADD, use) == 32 + 12 + 4
    assert alone(product(result=1), ADD, use) == 12  # vector instructions continue beside the matrix unit


def test_a_slow_vector_instruction_keeps_the_wave() -> None:
    assert alone(EXP, ADD) == 20
    fast = Step(unit=VECTOR, issue=1, busy=1, latency=4, results=(0,))
    assert alone(fast, fast, fast) == 3
    assert alone(fast, Step(unit=VECTOR, issue=1, busy=1, needs=(0,))) == 6


# ---- several waves ----


def test_waves_hide_the_latency_of_each_other_but_share_units() -> None:
    one = [LOAD, wait(waits.LOADS), *[ADD] * 20]
    (single,) = durations([[[one]]], sharing=1)
    both = durations([[[one]], [[one]]], sharing=1)
    assert single == 340 + 80
    assert max(both) == 340 + 2 * 80  # one latency, then the vector unit is busy with both
    busy = [[[[ADD] * 50]]] * 4
    assert max(durations(busy, sharing=1)) == 4 * 200


def test_waves_of_a_workgroup_meet_at_barriers() -> None:
    short, long = [BARRIER, ADD], [EXP, EXP, BARRIER, ADD]
    (found,) = durations([[[short, long]]], sharing=1)
    assert found == 32 + 4 + 8
    (apart,) = durations([[[[ADD], long]]], sharing=1)  # a wave that has ended is not waited for
    assert apart == pytest.approx(4 + 32 + 4 + 4)


def test_the_first_of_several_bundles_of_a_slot_does_not_count() -> None:
    assert durations([[[[ADD]], [[ADD] * 3]]], sharing=1) == [12]


@given(
    waves=st.lists(
        st.lists(
            st.sampled_from([ADD, EXP, LOAD, READ, product(result=0, sums=(0,)), wait(waits.LOADS)]),
            min_size=1,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_time_is_shorter_than_a_unit_is_busy(waves: list[list[Step]]) -> None:
    found = max(durations([[[wave]] for wave in waves], sharing=1))
    every = [step for wave in waves for step in wave]
    assert found >= sum(step.busy for step in every if step.unit == VECTOR)
    assert found >= 32 * (
        sum(step.unit == MATRIX for step in every) - 1
    )  # the end of a product is not waited for
    assert found >= max(sum(step.issue for step in wave) for wave in waves)


def test_a_unit_for_memory_accepts_some_instructions_ahead() -> None:
    """Waves that only load do not delay those that wait without end."""
    one = [LOAD] * 100
    assert alone(*one) == (100 - 8) * 16 + 4
    times = durations([[[[LOAD]]], [[[LOAD, wait(waits.LOADS)] * 4]]], sharing=1)
    assert max(times) < 4 * (320 + 9 * 16 + 8)


# ---- workgroups ----


def test_a_taken_branch_takes_longer() -> None:
    steps = [ADD, BRANCH, ADD]
    found = Paths(groups=((((0, 2),), 1),), starts=(0, 2, 3))
    again = Paths(groups=((((0, 0, 2),), 1),), starts=(0, 2, 3))
    first, second = (timeline(steps, one, waves=1, simds=4, resident=4) for one in (found, again))
    assert (first.wave, second.wave) == (12, 12 + 8 + 28)


def test_outstanding_loads_are_carried_over_the_back_edge_of_a_loop() -> None:
    """The next iteration's tile is loaded while this one is used."""
    body = [wait(waits.LOADS), LOAD, *[ADD] * 100, BRANCH]
    steps = [LOAD, *body, ADD]
    looped = Paths(groups=((((0, 1, 1, 1, 1 + len(body)),), 1),), starts=(0, 1, 1 + len(body), 2 + len(body)))
    found = timeline(steps, looped, waves=1, simds=4, resident=4)
    assert found.wave == 336 + 3 * (4 + 4 + 400 + 4) + 2 * 28 + 4  # one load is waited for, not four


def test_a_full_unit_is_never_slower_for_each_than_a_workgroup_alone() -> None:
    steps = [LOAD, wait(waits.LOADS), *[ADD] * 20]
    one = Paths(groups=((((0,),) * 4, 6),), starts=(0, 22))
    times = [timeline(steps, one, waves=4, simds=4, resident=number).workgroup for number in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[0] == pytest.approx(64 + 320 + 4 + 80)
    assert times[-1] >= 80  # the vector units


def test_workgroups_that_do_not_divide_among_the_simds() -> None:
    """Three workgroups of two waves on four SIMDs: two SIMDs have two waves, two have one."""
    steps = [ADD] * 10
    one = Paths(groups=((((0,),) * 2, 3),), starts=(0, 10))
    both, three, four = (
        timeline(steps, one, waves=2, simds=4, resident=number).workgroup for number in (2, 3, 4)
    )
    assert both == pytest.approx(20) and four == pytest.approx(
        20
    )  # the vector units are busy with one wave each
    assert both == pytest.approx(three)


def test_different_workgroups_count_by_their_number() -> None:
    steps = [*[ADD] * 10, *[ADD] * 30]
    starts = (0, 10, 40)
    short, long, mixed = (
        timeline(steps, Paths(groups=groups, starts=starts), waves=4, simds=4, resident=1).workgroup
        for groups in (
            ((((0,),) * 4, 4),),
            ((((0, 10),) * 4, 4),),
            ((((0,),) * 4, 3), (((0, 10),) * 4, 1)),
        )
    )
    assert (short, long, mixed) == pytest.approx((40, 160, (3 * 40 + 160) / 4))


def test_blocks_begin_at_labels_and_behind_branches() -> None:
    names = ("v_mov_b32", "v_dual_a", "v_dual_b", "s_cbranch_scc1", "v_add_f32", "s_branch", "s_endpgm")
    lines = [
        Line(number=1, text=name, name=name, encoding="", operands=(), address=at)
        for name, at in zip(names, (0, 4, 4, 12, 16, 20, 24), strict=True)
    ]
    assert block_starts(lines, {4}) == (0, 1, 4, 6, 7)
