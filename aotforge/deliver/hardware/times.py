"""Times of operators from those of their kernels, beside PyTorch's math path on the same calls."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import USER_PYTHON, child_environment, run_child
from aotforge.base.hardware import ReportedTime
from aotforge.deliver.pytorch.installed import active_python
from aotforge.formats.untrusted_file import parse_json
from aotforge.verify.device.messages import DeviceResult, ShownDevice, Time

_PROGRAM = Path(__file__).parent / "torch_attention.py"
_SECONDS = 600.0
_DTYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
_STEPS = {"attn_fwd": "forward", "attn_bwd": "backward"}


def call_times(
    results: Sequence[DeviceResult], device: ShownDevice, python: Path | None
) -> tuple[list[ReportedTime], str]:
    """A row per operator and functional, and PyTorch's version or why it was not timed."""
    rows = operator_rows([time for result in results for time in result.times])
    problems = [_problem(row) for row in rows]
    if not (wanted := [problem for problem in problems if problem]):
        return rows, "no call of attention was timed"
    torch_times, torch = _torch_times(wanted, device, python)
    took = iter(torch_times)
    times = [next(took, None) if problem else None for problem in problems]
    return [row.model_copy(update={"torch": time}) for row, time in zip(rows, times, strict=True)], torch


def operator_rows(times: Sequence[Time]) -> list[ReportedTime]:
    """The sum of an operator's kernels for each functional of the kernel that has the most keys, where all
    of them were timed."""
    rows = []
    for operator in dict.fromkeys(time.operator for time in times):
        own = [time for time in times if time.operator == operator]
        most = max(own, key=lambda time: len(time.keys)).kernel
        for first in (time for time in own if time.kernel == most):
            keys = dict(first.keys)
            fitting = {
                time.kernel: time.milliseconds
                for time in reversed(own)  # the first one counts
                if time.call == first.call and all(keys.get(name, n) == n for name, n in time.keys)
            }
            if len(fitting) == len({time.kernel for time in own}):
                total = round(sum(fitting.values()), 5)
                rows.append(
                    ReportedTime(
                        operator=operator,
                        functional=first.functional,
                        keys=keys,
                        call=first.call,
                        milliseconds=total,
                    )
                )
    return rows


def _problem(row: ReportedTime) -> dict[str, Any] | None:
    """The call as PyTorch's attention takes it; None for one that it has not."""
    keys, call = row.keys, dict(part.split("=") for part in row.call.split(", "))
    if row.operator not in _STEPS or keys.get("dropout") or keys["mask"] not in {0, 1}:
        return None
    sizes = {name: int(call[name]) for name in ("batch", "heads_q", "heads_k", "seqlen_q", "seqlen_k")}
    if sizes["heads_q"] != sizes["heads_k"] or keys["dtype"] not in _DTYPES:
        return None
    return sizes | {
        "step": _STEPS[row.operator],
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
        return [None if time is None else float(time) for time in answer["times"]], str(answer["torch"])[:400]
    except subprocess.TimeoutExpired:
        return [], f"PyTorch was not timed: no end after {_SECONDS:g} s"
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return [], f"PyTorch was not timed: {command[0]} failed"
