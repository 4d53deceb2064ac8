"""The program that calls AOTriton's library, and its runs on the virtual GPU."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.errors import ExecutionError, ToolchainError
from aotforge.run.release_programs import ReleasePrograms
from aotforge.upstream.calls import BIAS_ROW, Cell, Problem, from_stored, stored_input, stored_shape
from aotforge.verify.interpreter.number_formats import STORAGE, DType, decode, encode
from kernels.flash.call import DTYPE_KEY, Dropout
from vgpu.hip.build_hip import VirtualHip, environment, find_compiler

_SOURCE = Path(__file__).parent / "client.cpp"
_COMPILE_SECONDS, _SECONDS = 300, 3600


@dataclass(frozen=True, kw_only=True)
class Client:
    """The compiled `program` for the library in `prefix`, whose images have their texts in `folder`/asm, on a
    virtual device."""

    root: Path
    prefix: Path
    folder: Path
    cache: Path
    program: Path
    virtual: VirtualHip
    programs: ReleasePrograms
    arch: str

    def calls(
        self, by_problem: Mapping[Problem, Sequence[Cell]]
    ) -> Iterator[tuple[Problem, Cell, tuple[int, int], dict[str, Any], list[dict[str, Any]]]]:
        """Status, outputs and launches of each call, in the order of problems. Raises ExecutionError."""
        with tempfile.TemporaryDirectory(prefix="call-", dir=self.folder) as made:
            own = Path(made)
            for name in ("record", "out"):
                (own / name).touch()
            (own / "in").write_bytes(b"".join(map(_input, by_problem)))
            add = environment(
                self.virtual, devices=[self.arch], texts=[self.folder / "asm"], cache=self.cache
            )
            add["AOTFORGE_VIRTUAL"] += f",record={own / 'record'}"
            add["LD_LIBRARY_PATH"] = f"{self.prefix / 'lib'}:{add['LD_LIBRARY_PATH']}"
            done = self.programs.run(
                [str(self.program), *(str(own / name) for name in ("in", "out", "record"))],
                environment=add,
                readable=self._readable(),
                writable=[own, self.cache],
                seconds=_SECONDS,
                text="".join(_lines(problem, group) for problem, group in by_problem.items()),
            )
            records, data = ((own / name).read_bytes() for name in ("record", "out"))
        rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        planned = [(problem, cell) for problem, group in by_problem.items() for cell in group]
        if done.status or len(rows) != len(planned):
            failed = planned[min(len(rows), len(planned) - 1)][1].label
            raise ExecutionError(
                f"AOTriton's library ended ({done.status}) in {failed}:\n{done.stderr.strip()[-2000:]}",
                cause="the library needs another HIP, or an image accesses what it must not",
            )
        before, at = 0, 0
        for (problem, cell), (first, second, size) in zip(planned, rows, strict=True):
            outputs, at = _outputs(problem, data, at)
            events = [json.loads(line) for line in records[before:size].splitlines()]
            before = size
            launches = [event for event in events if event["event"] == "launch"]
            yield problem, cell, (first, second), outputs, launches

    def _readable(self) -> list[Path]:
        python = [Path(sys.prefix), Path(sys.base_prefix)]
        places = [self.root, self.prefix.parent, self.virtual.folder.parent, self.program.parent, *python]
        return [place for place in places if not place.is_relative_to("/usr")]


def _lines(problem: Problem, group: Sequence[Cell]) -> str:
    """A problem for the client, with its cells."""
    dropout = problem.dropout or Dropout()
    numbers = (
        DTYPE_KEY[problem.dtype], problem.heads_q, problem.heads_k, problem.head_dim,
        int(problem.window_right is not None), problem.sm_scale, group[0].dropout_p,
        dropout.seed, dropout.offset1, dropout.offset2, problem.batch,
        BIAS_ROW if problem.bias else 0, len(group),
    )  # fmt: skip
    cells = ["{} {} {}\n".format(*(cell.maxima or (0, 0)), cell.backend) for cell in group]
    return " ".join(map(str, numbers)) + "\n" + "".join(cells)


def _input(problem: Problem) -> bytes:
    sides = [problem.side(keys=keys) for keys in (False, True)]
    ends = [np.array(np.cumsum((0, *side.lengths)), dtype=np.int32).tobytes() for side in sides]
    tensors = [
        encode(np.ascontiguousarray(stored_input(problem, name, values)), problem.dtype).tobytes()
        for name, values in problem.inputs().items()
    ]
    return b"".join(ends + tensors)


def _outputs(problem: Problem, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    outputs = {}
    for name in problem.outputs:
        dtype: DType = "fp32" if name == "L" else problem.dtype
        shape = stored_shape(problem, name)
        stored = np.frombuffer(data, dtype=STORAGE[dtype], count=int(np.prod(shape)), offset=at)
        outputs[name] = from_stored(problem, name, decode(stored, dtype).reshape(shape))
        at += stored.nbytes
    return outputs, at


def build_client(root: Path, prefix: Path, virtual: VirtualHip, out: Path, programs: ReleasePrograms) -> Path:
    """Compiles the client against the library. Raises ToolchainError."""
    standin = root / "runtime" / "src" / "standin"
    command = [
        *find_compiler(os.environ), "-std=c++20", "-O1", str(_SOURCE), "-o", str(out), f"-I{standin}",
        f"-I{prefix / 'include'}", "-D__HIP_PLATFORM_AMD__", f"-L{prefix / 'lib'}", "-laotriton_v2",
        f"-L{virtual.folder}", "-lamdhip64", f"-Wl,-rpath,{prefix / 'lib'}",
    ]  # fmt: skip
    readable = [_SOURCE, standin, prefix, virtual.folder.parent]
    done = programs.compile(command, readable=readable, writable=[out.parent], seconds=_COMPILE_SECONDS)
    if done.status:
        raise ToolchainError(
            f"no program compiles against AOTriton's library:\n{done.stderr[:2000]}",
            cause="its headers are those of another version than 0.13",
            hint="name the prefix of a library that was built from the same checkout",
        )
    return out
