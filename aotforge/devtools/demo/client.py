"""Running the client program against a release on virtual devices, and judging what it computed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from aotforge.deliver.extract import ExtractedRelease, extract_release
from aotforge.devtools.demo.model import DemoReport, Judged, Result
from aotforge.errors import ExecutionError, ToolchainError
from aotforge.verify.compare import Bounded
from aotforge.verify.tensors import Float
from aotforge.virtual_gpu.hip.build_hip import VirtualHip, build_virtual_hip, environment, find_compiler
from aotforge.virtual_gpu.interpreter.number_formats import DType, decode, encode
from kernels.flash.bounds import bounds
from kernels.flash.call import DTYPE_KEY
from kernels.flash.call import Case as Problem

_CLIENT = Path(__file__).parent / "client.cpp"
_OUTPUTS = {"out": "Q", "lse": "L", "dq": "Q", "dk": "K", "dv": "K"}
_SECONDS = 3600


def run_demo(
    root: Path,
    release: Path,
    *,
    archs: Sequence[str],
    packs: Sequence[str],
    problems: Sequence[Problem],
    cache: Path,
) -> DemoReport:
    """Unpack `release`, compile the client against its headers, run it on a virtual device of every chip, compare with float64.

    Raises ReleaseError, ToolchainError, ExecutionError when a call fails.
    """
    with tempfile.TemporaryDirectory(prefix="aotforge-demo-") as scratch:
        folder = Path(scratch)
        extracted = extract_release(release, packs, folder)
        virtual = build_virtual_hip(cache)
        client = build_client(root, extracted, virtual, folder / "client")
        settings = environment(virtual, devices=archs, texts=extracted.texts, cache=cache)
        results = tuple(
            run_problem(client, problem, device, arch, settings, folder)
            for device, arch in enumerate(archs)
            for problem in problems
        )
        return DemoReport(release=release.name, tarballs=extracted.names, results=results)


def build_client(root: Path, extracted: ExtractedRelease, virtual: VirtualHip, out: Path) -> Path:
    """Compile the client against the release's headers and link it with its library and HIP's. Raises ToolchainError."""
    command = [
        *find_compiler(os.environ), "-std=c++17", "-O1", str(_CLIENT), "-o", str(out),
        f"-I{extracted.prefix / 'include'}", f"-I{root / 'runtime' / 'src' / 'standin'}",
        f"-L{extracted.prefix / 'lib'}", "-laotriton_v2", f"-L{virtual.folder}", "-lamdhip64", f"-Wl,-rpath,{extracted.prefix / 'lib'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(
            f"the demo's client does not compile against the release:\n{done.stderr[:2000]}",
            cause="a compiler without C++17 and libstdc++, or a damaged release",
            hint="build the release again",
        )
    return out


def run_problem(
    client: Path, problem: Problem, device: int, arch: str, settings: Mapping[str, str], folder: Path
) -> Result:
    """One run of the client. Raises ExecutionError with what it and the virtual HIP said."""
    given, made, record = folder / "in", folder / "out", folder / "record"
    inputs = problem.inputs()
    given.write_bytes(b"".join(encode(inputs[n], problem.dtype).tobytes() for n in ("Q", "K", "V", "DO")))
    record.write_bytes(b"")
    shape = (
        problem.batch,
        problem.heads_q,
        problem.heads_k,
        problem.seqlen_q,
        problem.seqlen_k,
        problem.head_dim,
    )
    numbers = (
        device,
        DTYPE_KEY[problem.dtype],
        *shape,
        int(problem.window_right is not None),
        problem.sm_scale,
    )
    try:
        done = subprocess.run(
            [str(client), str(given), str(made), *map(str, numbers)],
            env=_clean(os.environ) | dict(settings) | {"AOTFORGE_VIRTUAL_RECORD": str(record), "AOTRITON_LOG": "warn"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ExecutionError(
            f"attention on the virtual {arch} has not ended within {_SECONDS} s",
            cause="a machine with too much other work, or the client waits for something",
        ) from error
    if done.returncode:
        raise ExecutionError(
            f"attention on the virtual {arch} failed ({done.returncode}):\n{done.stderr.strip()[-4000:]}",
            cause="the release has no image for this call, or an image does what it must not",
        )
    seconds = dict(line.split() for line in done.stdout.splitlines())
    events = [json.loads(line) for line in record.read_text().splitlines()]
    return Result(
        arch=arch,
        problem=problem,
        outputs=_judged(problem, inputs, made.read_bytes()),
        forward_seconds=float(seconds["forward"]),
        backward_seconds=float(seconds["backward"]),
        preparing_seconds=sum(e["seconds"] for e in events if e["event"] == "load"),
        served=tuple(
            (e["kernel"], e["image"], e["instructions"], e["seconds"])
            for e in events
            if e["event"] == "launch"
        ),
    )


def _clean(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(("AOTRITON_", "AOTFORGE_VIRTUAL"))
    }


def _judged(problem: Problem, inputs: Mapping[str, Float], data: bytes) -> tuple[Judged, ...]:
    expected = bounds(
        inputs["Q"], inputs["K"], inputs["V"], inputs["DO"],
        sm_scale=float(np.float32(problem.sm_scale)), window_right=problem.window_right, dtype=problem.dtype,
    )  # fmt: skip
    judged, at = [], 0
    for name, like in _OUTPUTS.items():
        shape = problem.shape("Q")[:3] if like == "L" else problem.shape(like)
        dtype: DType = "fp32" if like == "L" else problem.dtype
        size = int(np.prod(shape)) * (4 if dtype == "fp32" else 2)
        stored = np.frombuffer(data[at : at + size], dtype=np.float32 if dtype == "fp32" else _stored(dtype))
        judged.append(_judge(name, decode(stored, dtype).reshape(shape), expected[name]))
        at += size
    return tuple(judged)


def _stored(dtype: DType) -> type[np.generic]:
    return np.float16 if dtype == "fp16" else np.uint16


def _judge(name: str, actual: Float, expected: Bounded) -> Judged:
    with np.errstate(invalid="ignore"):
        error = np.where(actual == expected.value, 0.0, np.abs(actual - expected.value))
    finite = np.where(np.isfinite(expected.value), np.abs(expected.value), 0.0)
    return Judged(
        name=name,
        largest_error=float(np.nan_to_num(error, nan=np.inf).max(initial=0.0)),
        largest_value=float(finite.max(initial=0.0)),
        of_bound=float(expected.misses(actual).max(initial=0.0)),
    )
