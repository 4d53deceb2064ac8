"""Programs of `check` that load the release's library."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.conformance.checks import running
from aotforge.conformance.checks.running import PackProbe
from aotforge.run.release_programs import ProgramResult


class Programs:
    """Instead of a sandbox: the files that each program sees."""

    def __init__(self, result: ProgramResult) -> None:
        self.result = result
        self.seen: list[list[bytes]] = []

    def run(self, command: list[str], *, environment: dict[str, str], **_: Any) -> ProgramResult:
        images = Path(environment["AOTRITON_IMAGES_DIR"])
        self.seen.append([path.read_bytes() for path in sorted(images.rglob("*")) if path.is_file()])
        return self.result


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackProbe:
    folder = tmp_path / "unpacked" / "amd-gfx908"
    folder.mkdir(parents=True)
    (folder / "dispatch.aotd").write_bytes(b"dispatch")
    (folder / "images").write_bytes(b"images")
    work = tmp_path / "work"
    work.mkdir()
    programs = Programs(ProgramResult(status=0, stdout="check_gpu 0", stderr=""))
    context: Any = SimpleNamespace(work=work, prefix=tmp_path, programs=programs)
    opened: Any = SimpleNamespace(name="amd-gfx908")
    monkeypatch.setattr(running, "_hip_double", lambda _: tmp_path)
    monkeypatch.setattr(PackProbe, "plain_call", lambda self, arch: ("2", "64"))
    return PackProbe(context=context, program=tmp_path / "program", folder=folder, opened=opened)


def test_copies_of_a_pack_do_not_stay(probe: PackProbe) -> None:
    """A pack names up to 64 archs, and each had a copy until the checks ended."""
    assert probe.run("gfx908").status == 0
    assert list(probe.context.work.iterdir()) == []
    assert probe.run("gfx908", lambda data: data.upper()).status == 0
    assert list(probe.context.work.iterdir()) == []
    programs: Any = probe.context.programs
    assert programs.seen == [[b"dispatch", b"images"], [b"DISPATCH", b"images"]]
    assert (probe.folder / "dispatch.aotd").read_bytes() == b"dispatch"
