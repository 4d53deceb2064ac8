"""Hugging Face's transformers on aotforge_flash: greedy tokens are those of its eager attention."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.families import PROJECT

PYTHON = os.environ.get("AOTFORGE_TRANSFORMERS", "")
MODELS = ("Llama", "Qwen3", "Gemma2", "GptOss")
CACHES = ("dynamic", "static", "padded", "paged")
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.torch,
    pytest.mark.skipif(
        not PYTHON, reason="needs AOTFORGE_TRANSFORMERS: a Python with transformers and PyTorch"
    ),
]


@pytest.mark.parametrize("steps", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_every_model_with_every_cache(library: Path, steps: int) -> None:
    """24 steps are 15 CPU seconds, of which imports are 9."""
    done = subprocess.run(
        (PYTHON, "-m", "tests.support.transformers_models", library, str(steps)),
        cwd=PROJECT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [line.split(":")[0] for line in done.stdout.splitlines() if "tokens agree" in line]
    assert found == [f"{model} {cache}" for model in MODELS for cache in CACHES]
