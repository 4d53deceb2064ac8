"""Attention on a virtual GPU by a dropped-in library, loaded by the name that PyTorch needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from aotforge.deliver.extract import extract_release
from aotforge.devtools.demo.client import ClientRunner, build_client
from aotforge.devtools.demo.demo_report import CallResult
from aotforge.run.release_programs import ReleasePrograms
from kernels.flash.call import Case
from tests.e2e.checkouts import HOME, ROOT
from vgpu.hip.build_hip import build_virtual_hip, environment

CALL = Case(
    dtype="fp16", batch=1, heads_q=2, heads_k=2, seqlen_q=100, seqlen_k=100, head_dim=64, sm_scale=0.125,
    window_right=0,
)  # fmt: skip
"""The call of attention.py on the owners' pages, on fewer heads and tokens."""


class _Programs:
    """Runs a program as a user's shell does. `preload`: the library that it loads first, as PyTorch would."""

    def __init__(self, preload: Path) -> None:
        self._preload = preload
        self.errors = ""

    def compile(self, command: Sequence[str], **_: object) -> SimpleNamespace:
        return self._done(command, {})

    def run(self, command: Sequence[str], *, environment: Mapping[str, str], **_: object) -> SimpleNamespace:
        own = {"LD_PRELOAD": str(self._preload), "AOTRITON_LOG": "info", "AOTFORGE_PARTIAL_PACK": ""}
        done = self._done(command, {**environment, **own})
        self.errors += done.stderr
        return done

    def _done(self, command: Sequence[str], settings: Mapping[str, str]) -> SimpleNamespace:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_"))}
        done = subprocess.run(command, env=kept | dict(settings), capture_output=True, text=True, check=False)
        return SimpleNamespace(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def attention(
    torch_lib: Path, name: str, release: Path, pack: str, arch: str, folder: Path
) -> tuple[CallResult, str]:
    """Forward and backward after check_gpu, by torch_lib/`name`, and the log. Raises ExecutionError."""
    programs = _Programs(torch_lib / name)
    given = cast(ReleasePrograms, cast(Any, programs))
    extracted = extract_release(release, [pack], folder)
    virtual = build_virtual_hip(HOME / "cache")
    client = build_client(ROOT, extracted, virtual, folder / "client", given)
    settings = environment(virtual, devices=[arch], texts=extracted.texts, cache=HOME / "cache")
    runner = ClientRunner(
        client=client, folder=folder, programs=given, settings=settings, readable=(), cache=HOME / "cache"
    )
    return runner.run(CALL, 0, arch), programs.errors
