"""The demo's client program: compiled against a release, run on virtual devices, and compared."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aotforge.deliver.extract import ExtractedRelease
from aotforge.devtools.demo.demo_report import CallResult, OutputResult
from aotforge.errors import ExecutionError, ToolchainError
from aotforge.run.release_programs import ReleasePrograms
from aotforge.verify.compare import largest_error
from aotforge.verify.interpreter.number_formats import STORAGE, DType, decode, encode
from aotforge.verify.tensors import Float
from kernels.flash.bounds import bounds
from kernels.flash.call import DTYPE_KEY
from kernels.flash.call import Case as Problem
from vgpu.hip.build_hip import VirtualHip, find_compiler

_CLIENT = Path(__file__).parent / "client.cpp"
_OUTPUTS = {"out": "Q", "lse": "L", "dq": "Q", "dk": "K", "dv": "K"}
_SECONDS = 3600
_COMPILE_SECONDS = 300


def build_client(
    root: Path, extracted: ExtractedRelease, virtual: VirtualHip, out: Path, programs: ReleasePrograms
) -> Path:
    """Compile the client against the release's headers and link it with its library and HIP's. Raises
    ToolchainError."""
    command = [
        *find_compiler(os.environ), "-std=c++17", "-O1", str(_CLIENT), "-o", str(out),
        f"-I{extracted.prefix / 'include'}", f"-I{root / 'runtime' / 'src' / 'standin'}",
        f"-L{extracted.prefix / 'lib'}", "-laotriton_v2", f"-L{virtual.folder}", "-lamdhip64",
        f"-Wl,-rpath,{extracted.prefix / 'lib'}",
    ]  # fmt: skip
    standin = root / "runtime" / "src" / "standin"
    readable = [_CLIENT, standin, extracted.prefix, virtual.folder.parent]
    done = programs.compile(command, readable=readable, writable=[out.parent], seconds=_COMPILE_SECONDS)
    if done.status:
        raise ToolchainError(
            f"the demo's client does not compile against the release:\n{done.stderr[:2000]}",
            cause="a compiler without C++17 and libstdc++, or a damaged release",
            hint="build the release again: ./dev build",
        )
    return out


@dataclass(frozen=True, kw_only=True)
class ClientRunner:
    """Runs the client by `programs`. `folder` takes its files, `cache` prepared images; `readable` is what
    else it uses, `settings` its environment."""

    client: Path
    folder: Path
    programs: ReleasePrograms
    settings: Mapping[str, str]
    readable: tuple[Path, ...]
    cache: Path

    def run(self, problem: Problem, device: int, arch: str) -> CallResult:
        """One call. Raises ExecutionError with the client's and virtual HIP's messages."""
        inputs = problem.inputs()
        shared = Path(tempfile.mkdtemp(prefix="call-", dir=self.folder))
        (self.folder / "in").write_bytes(
            b"".join(encode(inputs[n], problem.dtype).tobytes() for n in ("Q", "K", "V", "DO"))
        )
        p = problem
        numbers = (
            device, DTYPE_KEY[p.dtype], p.batch, p.heads_q, p.heads_k, p.seqlen_q, p.seqlen_k, p.head_dim,
            int(p.window_right is not None), p.sm_scale,
        )  # fmt: skip
        command = [str(self.client), str(self.folder / "in"), str(shared / "out"), *map(str, numbers)]
        seconds = dict(line.split() for line in self._output(command, arch, shared).splitlines())
        events = [json.loads(line) for line in (shared / "record").read_text().splitlines()]
        return CallResult(
            arch=arch,
            problem=problem,
            outputs=_compared(problem, inputs, (shared / "out").read_bytes()),
            forward_seconds=float(seconds["forward"]),
            backward_seconds=float(seconds["backward"]),
            preparing_seconds=sum(event["seconds"] for event in events if event["event"] == "load"),
            served=tuple(
                (event["kernel"], event["image"], event["instructions"], event["seconds"])
                for event in events
                if event["event"] == "launch"
            ),
        )

    def _output(self, command: list[str], arch: str, shared: Path) -> str:
        """Standard output of the client, which writes to the folder `shared` and the cache only."""
        (shared / "record").touch()
        # the client calls only what its problems name
        add = {**self.settings, "AOTRITON_LOG": "warn", "AOTFORGE_PARTIAL_PACK": "1"}
        add["AOTFORGE_VIRTUAL"] += f",record={shared / 'record'}"
        writable = (shared, self.cache)
        done = self.programs.run(
            command, environment=add, readable=self.readable, writable=writable, seconds=_SECONDS
        )
        if done.status is None:
            raise ExecutionError(
                f"attention on the virtual {arch} has not ended within {_SECONDS} s",
                cause="a machine with too much other work, or the client waits for something",
            )
        if done.status:
            raise ExecutionError(
                f"attention on the virtual {arch} failed ({done.status}):\n{done.stderr.strip()[-4000:]}",
                cause="the release has no image for this call, or an image accesses what it must not",
            )
        return done.stdout


def _compared(problem: Problem, inputs: Mapping[str, Float], data: bytes) -> tuple[OutputResult, ...]:
    expected = bounds(
        inputs["Q"], inputs["K"], inputs["V"], inputs["DO"], problem.options(inputs), dtype=problem.dtype
    )
    results, at = [], 0
    for name, like in _OUTPUTS.items():
        shape = problem.shape("Q")[:3] if like == "L" else problem.shape(like)
        dtype: DType = "fp32" if like == "L" else problem.dtype
        stored = np.frombuffer(data, dtype=STORAGE[dtype], count=int(np.prod(shape)), offset=at)
        actual, bounded = decode(stored, dtype).reshape(shape), expected[name]
        finite = np.where(np.isfinite(bounded.value), np.abs(bounded.value), 0.0)
        results.append(
            OutputResult(
                name=name,
                largest_error=largest_error(actual, bounded.value),
                largest_value=float(finite.max(initial=0.0)),
                of_bound=float(bounded.misses(actual).max(initial=0.0)),
            )
        )
        at += stored.nbytes
    return tuple(results)
