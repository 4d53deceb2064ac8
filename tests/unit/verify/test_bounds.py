"""The comparison catches one percent and unwritten tiles in every attention kernel, and passes correct rounding."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.interpret.numbers import decode, encode
from aotforge.verify.bounds import Bounded
from aotforge.verify.families import load_cases
from aotforge.verify.tensors import Float
from aotforge.verify.trial import Trial
from tests.support.families import PROJECT

KERNELS = ["attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq"]


def trials(kernel: str, dtype: int, head_dim: int, causal: int) -> list[Trial]:
    cases = load_cases(PROJECT / "kernels", "flash")
    assert cases
    return [case.make() for case in cases(kernel, {"dtype": dtype, "head_dim": head_dim, "causal": causal})]


def caught(bounded: Bounded, actual: Float) -> bool:
    return bool(bounded.misses(actual).max() > 1 or bounded.rescaled(actual).max() > 1)


def strength(trial: Trial) -> dict[str, int]:
    """How often a tile that is one percent off is caught, by output; correct rounding must pass, unwritten tiles not."""
    found: dict[str, int] = {}
    for name, bounded in trial.expected().items():
        if not bounded.value.size:
            continue
        right = decode(encode(bounded.value, trial.outputs[name].dtype), trial.outputs[name].dtype)
        assert not caught(bounded, right), name
        wrong, unwritten = right.copy(), right.copy()
        wrong[..., :16, :16] *= 1.01
        unwritten[..., -1:, -16:] = trial.outputs[name].values()[..., -1:, -16:]
        assert caught(bounded, unwritten), name
        found[name] = caught(bounded, wrong)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [2, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_one_percent_and_unwritten_tiles_are_caught(kernel: str, dtype: int, causal: int) -> None:
    found = [strength(trial) for trial in trials(kernel, dtype, 64, causal)]
    for output in {name for each in found for name in each}:
        seen = [each[output] for each in found if output in each]
        # the others are all zero, or sums that cancel
        assert sum(seen) > len(seen) / 2, output


def test_a_scale_within_the_elements_bounds_is_caught_over_a_tile() -> None:
    rng = np.random.default_rng(3)
    value = rng.standard_normal((1, 1, 64, 48))
    bounded = Bounded(value=value, error=0.015 * np.abs(value))
    noisy = value * (1 + rng.uniform(-0.01, 0.01, value.shape))
    assert bounded.rescaled(noisy).max() <= 1
    noisy[..., 16:32, 32:48] *= 1.01
    assert bounded.misses(noisy).max() <= 2
    tiles = bounded.rescaled(noisy)
    assert np.argwhere(tiles > 1).tolist() == [[0, 0, 1, 2]]


def test_rows_without_keys_and_empty_tensors_are_compared() -> None:
    infinite = Bounded(value=np.array([[np.inf, 1.0]]), error=np.array([[0.0, 0.1]]))
    assert infinite.misses(np.array([[np.inf, 1.05]])).max() <= 1
    assert np.isinf(infinite.misses(np.array([[3e38, 1.0]])).max())
    assert infinite.rescaled(np.array([[np.inf, 1.0]])).max() <= 1
    empty = Bounded(value=np.zeros((1, 2, 0, 64)), error=np.zeros((1, 2, 0, 64)))
    assert empty.misses(np.zeros((1, 2, 0, 64))).size == 0
    assert empty.rescaled(np.zeros((1, 2, 0, 64))).max(initial=0.0) == 0
