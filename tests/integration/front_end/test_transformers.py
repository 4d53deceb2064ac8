"""Hugging Face's transformers on aotforge_flash: greedy tokens are those of its eager attention."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.families import PROJECT

PYTHON = os.environ.get("AOTFORGE_TRANSFORMERS", "")
MODELS = ("Llama", "Qwen3", "Gemma2", "GptOss")
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(
        not PYTHON, reason="needs AOTFORGE_TRANSFORMERS: a Python with transformers and PyTorch"
    ),
]


def compare(library: Path, steps: int, cache: str, *models: str) -> list[str]:
    done = subprocess.run(
        (PYTHON, "-m", "tests.support.transformers_models", library, str(steps), cache, *models),
        cwd=PROJECT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split(":")[0] for line in done.stdout.splitlines() if "tokens agree" in line]


@pytest.mark.parametrize("cache", ["static", "padded", "paged"])
def test_llama_for_some_steps(library: Path, cache: str) -> None:
    assert compare(library, 40, cache, "Llama") == [f"Llama {cache}"]


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["dynamic", "static", "padded", "paged"])
def test_200_steps(library: Path, cache: str) -> None:
    names = MODELS[:2] if cache == "paged" else MODELS
    assert compare(library, 200, cache, *names) == [f"{name} {cache}" for name in names]
