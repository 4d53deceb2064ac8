"""Random calls of flash-attn's public test grids, from a checkout, on aotforge_flash by its shim.

    python -m tests.support.flash_attn_grids LIBRARY CHECKOUT cpu|cuda COUNT [SEED] [SECONDS]

Draws COUNT sets of parameters for each test function of tests/test_flash_attn.py, for processors from those
with few products, until SECONDS are over. Prints for each function how many were served, refused by which
name, and failed. Exit status 1: one failed.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

import aotforge_flash
from aotforge_flash import shim

_BOUNDS = "test_flash_attn_kvcache_paged_block_table_bounds"
"""It wants errors for lengths, which are not read where only the GPU has them."""
_OTHERS = {
    "test_flash_attn_generator_arg_must_be_none": "calls flash-attn's extension",
    "test_flash_attn_varlen_paged_kv_num_splits": "calls a private function",
}
_MOST_PRODUCTS = 1_000_000
"""queries x keys x head_dim of a head, for processors."""


def rotated(x: Any, cos: Any, sin: Any, interleaved: bool = False, seqlen_offsets: Any = 0) -> Any:
    """flash_attn.layers.rotary needs Triton."""
    at = seqlen_offsets[:, None] + torch.arange(x.shape[1], device=x.device)
    turn = torch.complex(cos.float(), sin.float())[at][:, :, None]
    half = cos.shape[-1]
    columns = x[..., : 2 * half].float()
    if interleaved:
        pairs = columns.unflatten(-1, (half, 2))
    else:
        pairs = columns.unflatten(-1, (2, half)).transpose(-1, -2)
    made = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
    made = made if interleaved else made.transpose(-1, -2)
    return torch.cat((made.flatten(-2).to(x.dtype), x[..., 2 * half :]), -1)


def _module(name: str, **content: Any) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(content)
    return module


def load_tests(checkout: Path, device: str) -> ModuleType:
    """The checkout's tests on the shim, on `device`."""
    shim.install()
    interface = sys.modules["flash_attn.flash_attn_interface"]
    interface.__dict__.update(_get_block_size_n=None, USE_TRITON_ROCM=False)
    _module("flash_attn.layers", __path__=[])
    _module("flash_attn.layers.rotary", apply_rotary_emb=rotated)
    spec = importlib.util.spec_from_file_location(
        "flash_attn.bert_padding", checkout / "flash_attn" / "bert_padding.py"
    )
    assert spec is not None and spec.loader is not None
    padding = sys.modules["flash_attn.bert_padding"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(padding)
    path = checkout / "tests" / "test_flash_attn.py"
    source = path.read_text(encoding="utf-8").replace('"cuda"', f'"{device}"')
    tests = _module("flash_attn_tests")
    properties = SimpleNamespace(total_memory=1 << 40)
    with patch.object(torch.cuda, "get_device_capability", lambda _device: (9, 0)):
        exec(compile(source, str(path), "exec"), tests.__dict__)
    if device == "cpu":
        torch.cuda.get_device_properties = lambda _device: properties
    return tests


def drawn(function: Any, dice: random.Random) -> dict[str, Any]:
    """One value for each parameter."""
    chosen: dict[str, Any] = {}
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            names, values = mark.args[0].split(","), mark.args[1]
            value = dice.choice(list(values))
            chosen |= zip((n.strip() for n in names), value if len(names) > 1 else (value,), strict=True)
    return chosen


def _products(chosen: dict[str, Any]) -> int:
    sizes = [chosen.get(name, chosen.get("seqlen", 1)) for name in ("seqlen_q", "seqlen_k")]
    return int(sizes[0] * sizes[1] * chosen.get("d", 64))


def outcome(function: Any, chosen: dict[str, Any]) -> str:
    """`served`, `skipped`, `refused: ...` or `failed: ...`."""
    try:
        function(**chosen)
    except pytest.skip.Exception:
        return "skipped"
    except aotforge_flash.NotServedError as error:
        return f"refused: {str(error).partition(':')[0]}"
    except NotImplementedError:
        return "refused: gradients over pages"
    except aotforge_flash.LaunchError as error:
        return "refused: no image" if "no installed image serves" in str(error) else f"failed: {error}"
    except Exception:  # noqa: BLE001 - of any kind is a failure
        return f"failed: {traceback.format_exc(limit=-2)}"
    return "served"


def results(tests: ModuleType, device: str, count: int, seed: int, seconds: float) -> Iterator[str]:
    """A line for each function; `failed` is in those with failures."""
    functions = {
        name: function
        for name, function in vars(tests).items()
        if name.startswith("test_") and name not in _OTHERS and (device == "cpu" or name != _BOUNDS)
    }
    dice, counts = random.Random(seed), {name: Counter[str]() for name in functions}
    end = time.monotonic() + seconds
    for _ in range(count):
        for name, function in functions.items():
            if time.monotonic() > end:
                break
            chosen = drawn(function, dice)
            while device == "cpu" and _products(chosen) > _MOST_PRODUCTS:
                chosen = drawn(function, dice)
            if name.endswith("race_condition") and device == "cpu":
                continue  # 250 times 240 heads
            result = outcome(function, chosen)
            if result.startswith("failed"):
                yield f"{name} {chosen} {result}"
            counts[name][result.partition("failed:")[0] or "failed"] += 1
    for name, counted in counts.items():
        yield f"{name}: " + ", ".join(f"{times} {kind}" for kind, times in sorted(counted.items()))


def main(library: str, checkout: str, device: str, count: int, seed: int, seconds: float) -> int:
    """Prints the results."""
    aotforge_flash.load(library)
    tests, wrong = load_tests(Path(checkout), device), 0
    with patch("builtins.print", lambda *_: None):  # of the tests
        for line in results(tests, device, count, seed, seconds):
            wrong += "failed:" in line
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    count, seed, seconds = (sys.argv[4:] + ["1", "1e9"][len(sys.argv) - 5 :])[:3]
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], int(count), int(seed), float(seconds)))
