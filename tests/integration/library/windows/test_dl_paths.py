"""Paths that dl opens and reports."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.dl import DlPrograms, dl_programs, missing_mingw
from tests.support.wine import Wine, windows_path

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())

_LONG = ["a" * 100, "b" * 100, "c" * 100]


@dataclass(frozen=True)
class Case:
    """A folder to put plug_a.dll into, and how the program names it: `spelling` of the file's Windows path,
    or a path relative to `folder`."""

    parts: list[str]
    encoding: str = "utf8"
    spelling: str = "{path}"
    relative: bool = False
    module: str = "plug_a.dll"
    seen: str = field(default="{path}")


CASES = {
    "ascii": Case(["plain"]),
    "spaces": Case(["with  two spaces", "and (signs) & $HOME"]),
    "slashes": Case(["slashes"], spelling="{slashes}"),
    "code page, as UTF-8": Case(["café 1"]),
    "code page, in it": Case(["café 2"], encoding="acp"),
    "code page that looks like UTF-8": Case(["cafÃ© 3"], encoding="acp"),
    "cyrillic": Case(["тест"]),
    "cjk": Case(["測試 試験"]),
    "beyond 16 bits": Case(["😀 𠮷"]),
    "beyond 260": Case([*_LONG, "d"]),
    "beyond 260, cjk": Case([*_LONG, "測試"]),
    "read-only": Case(["read only"]),
    "verbatim": Case(["verbatim"], spelling="\\\\?\\{path}"),
    "verbatim, cyrillic": Case(["verbatim тест"], spelling="\\\\?\\{path}"),
    "relative": Case(["relative", "sub"], spelling="sub\\plug_a.dll", relative=True),
    "relative, dots": Case(["dots", "sub"], spelling="./sub/../sub/plug_a", relative=True),
    "relative, cyrillic": Case(["relative 2", "тест"], spelling="тест/plug_a.dll", relative=True),
    # Wine names modules on a share UNC\\..., which the original hands on as it is
    "share": Case(["share"], spelling="{share}", seen="{share}"),
    "share, cjk": Case(["share 測試"], spelling="{share}", seen="{share}"),
}


@dataclass(frozen=True)
class Seen:
    """Lines that the program wrote for one case, by their first word; and the expected result of dladdr."""

    lines: dict[str, str]
    expected: str


@pytest.fixture(scope="module")
def share(wine: Wine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    r"""A folder that Wine serves as \\server\share: entries of dosdevices/unc are its servers."""
    folder = tmp_path_factory.mktemp("shared")
    server = wine.prefix / "dosdevices" / "unc" / f"aotforge-{os.getpid()}"
    server.mkdir(parents=True)
    (server / "share").symlink_to(folder)
    yield folder, f"\\\\{server.name}\\share"
    shutil.rmtree(server)


def run_cases(wine: Wine, programs: DlPrograms, base: Path, share: tuple[Path, str]) -> dict[str, Seen]:
    words, expected = [], []
    for case in CASES.values():
        shared = "{share}" in case.spelling
        target = (share[0] if shared else base).joinpath(*case.parts)
        target.mkdir(parents=True)
        shutil.copy(programs.folder / "plug_a.dll", target)
        if case.parts == ["read only"]:
            (target / "plug_a.dll").chmod(stat.S_IRUSR)
            target.chmod(stat.S_IRUSR | stat.S_IXUSR)
        path = windows_path(target / case.module)
        names = {"path": path, "slashes": path.replace("\\", "/")}
        names["share"] = "\\".join([share[1], *case.parts, case.module])
        folder = windows_path(base.joinpath(*case.parts[:-1])) if case.relative else "-"
        words += [case.encoding, case.spelling.format(**names), folder]
        expected.append(case.seen.format(**names))
    done = wine.run(programs.program("paths"), *words)
    blocks = done.stdout.split("case\n")[1:]
    assert len(blocks) == len(CASES), (done.returncode, done.stdout, done.stderr)
    parsed = [dict(line.split(" ", 1) for line in block.splitlines()) for block in blocks]
    return {name: Seen(lines, wanted) for name, lines, wanted in zip(CASES, parsed, expected, strict=True)}


@pytest.fixture(scope="module")
def own(wine: Wine, share: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return run_cases(wine, dl_programs(), tmp_path_factory.mktemp("own"), share)


@pytest.mark.parametrize("name", CASES)
def test_a_module_is_opened_and_named(own: dict[str, Seen], name: str) -> None:
    seen = own[name]
    if "file" in seen.lines:  # Windows keeps the prefix that a long path was opened with, Wine does not
        seen.lines["file"] = seen.lines["file"].removeprefix("\\\\?\\")
    assert seen.lines == {"which": "1", "file": seen.expected, "again": "same", "closed": "0", "left": "0"}


def test_program_and_dl_in_a_folder_outside_the_code_page(wine: Wine, tmp_path: Path) -> None:
    programs = dl_programs()
    folder = tmp_path / "Программа 測試 café"
    folder.mkdir()
    for name in ("paths.exe", "paths_static.exe", "dl.dll", "plug_a.dll"):
        shutil.copy(programs.folder / name, folder)
    for name in ("paths.exe", "paths_static.exe"):
        done = wine.run(folder / name, "utf8", "plug_a.dll", "-", folder=tmp_path)
        assert f"which 1\nfile {windows_path(folder / 'plug_a.dll')}\nagain same" in done.stdout, (
            done.stdout,
            done.stderr,
        )
