"""Times of operators from those of their kernels, beside PyTorch's math path on the same calls."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import USER_PYTHON, child_environment, run_child
from aotforge.deliver.pytorch.installed import active_python
from aotforge.formats.untrusted_file import parse_json
from aotforge.verify.device.messages import DeviceResult, ShownDevice, Time

_PROGRAM = Path(__file__).parent / "torch_attention.py"
_SECONDS = 600.0
_DTYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
_STEPS = {"attn_fwd": "forward", "attn_bwd": "backward"}


def call_times(
    results: Sequence[DeviceResult], device: ShownDevice, python: Path | None
) -> tuple[list[dict[str, Any]], str]:
    """A row per operator and functional, and PyTorch's version or why it was not timed."""
    rows = operator_rows([time for result in results for time in result.times])
    problems = [_problem(row) for row in rows]
    wanted = [problem for problem in problems if problem]
    if not wanted:
        return rows, "no call of attention was timed"
    found, torch = _torch_times(wanted, device, python)
    by_problem = {
        json.dumps(problem, sort_keys=True): took for problem, took in zip(wanted, found, strict=False)
    }
    for row, problem in zip(rows, problems, strict=True):
        row["torch"] = by_problem.get(json.dumps(problem, sort_keys=True)) if problem else None
    return rows, torch


def operator_rows(times: Sequence[Time]) -> list[dict[str, Any]]:
    """The sum of an operator's kernels for each functional of the kernel that has the most keys, where all
    of them were timed."""
    rows = []
    for operator in dict.fromkeys(time.operator for time in times):
        own = [time for time in times if time.operator == operator]
        kernels = list(dict.fromkeys(time.kernel for time in own))
        most = max(own, key=lambda time: len(time.keys)).kernel
        for first in (time for time in own if time.kernel == most):
            keys = dict(first.keys)
            fitting = [
                next(
                    (t for t in own if t.kernel == kernel and t.call == first.call and _within(t, keys)), None
                )
                for kernel in kernels
            ]
            parts = [time.milliseconds for time in fitting if time]
            if len(parts) == len(kernels):
                rows.append(
                    {
                        "operator": operator,
                        "functional": first.functional,
                        "keys": keys,
                        "call": first.call,
                        "milliseconds": round(sum(parts), 5),
                    }
                )
    return rows


def _within(time: Time, keys: Mapping[str, int]) -> bool:
    return all(keys.get(name, number) == number for name, number in time.keys)


def _problem(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The call as PyTorch's attention takes it; None for one that it has not."""
    keys, call = row["keys"], dict(part.split("=") for part in row["call"].split(", "))
    if row["operator"] not in _STEPS or keys.get("dropout") or keys["mask"] not in {0, 1}:
        return None
    sizes = {name: int(call[name]) for name in ("batch", "heads_q", "heads_k", "seqlen_q", "seqlen_k")}
    if sizes["heads_q"] != sizes["heads_k"] or keys["dtype"] not in _DTYPES:
        return None
    return sizes | {
        "step": _STEPS[row["operator"]],
        "dtype": _DTYPES[keys["dtype"]],
        "head_dim": keys["width"],
        "causal": keys["mask"] == 1,
    }


def _torch_times(
    problems: Sequence[Mapping[str, Any]], device: ShownDevice, python: Path | None
) -> tuple[list[float | None], str]:
    """PyTorch's times of these calls, in a process of its own: it may lack PyTorch, or PyTorch a GPU."""
    command = [str(python or active_python(os.environ)), str(_PROGRAM)]
    question = json.dumps({"number": device.number, "problems": problems})
    try:
        own = child_environment(keep=USER_PYTHON)
        done = run_child(command, environment=own, input=question, capture_output=True, timeout=_SECONDS)
        answer = parse_json(done.stdout.strip().splitlines()[-1])
        return [None if one is None else float(one) for one in answer["times"]], str(answer["torch"])[:400]
    except subprocess.TimeoutExpired:
        return [], f"PyTorch was not timed: no end after {_SECONDS:g} s"
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return [], f"PyTorch was not timed: {command[0]} failed"
