"""The allocator under a test driver in C that keeps a shadow of every block, and what Python does around
it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.errors import CacheError, ToolchainError
from aotforge.toolchain.allocator import allocator_digest, begin_heap, build_allocator, compiler_ranges

HERE = Path(__file__).parent
ALLOWED = {"__errno_location", "__register_atfork"}

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_allocator(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("driver") / "driver"
    # -fno-builtin: the compiler may neither drop a malloc nor know that its result is aligned or zero
    flags = ["-O1", "-g", "-fno-builtin", "-pthread", "-Wall", "-Werror", "-Wno-alloc-size-larger-than"]
    subprocess.run(["cc", *flags, "-o", str(made), str(HERE / "driver.c"), "-ldl"], check=True)
    return made


@pytest.mark.parametrize(
    "test", ["stress", "threads", "exchange", "forks", "limits", "reuse", "heaps", "callers"]
)
def test_driver(test: str, driver: Path, library: Path) -> None:
    seed = str(random.randint(1, 1 << 30))
    done = subprocess.run(
        [str(driver), test, seed],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), f"seed {seed}"


def test_the_driver_notices_another_allocator(driver: Path) -> None:
    done = subprocess.run([str(driver), "reuse"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "driver.c" in done.stdout


def test_an_occupied_address_moves_the_heaps_but_not_the_addresses_in_them(
    tmp_path: Path, library: Path
) -> None:
    """Low bits of addresses stay, so tables hashed by address do too. Two copies in one process want the same
    address."""
    script = """
import ctypes, sys
for path in sys.argv[1:]:
    malloc = ctypes.CDLL(path).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    print(*(malloc(size) for size in (40, 40, 100000, 5000)))
"""
    copy = shutil.copy(library, tmp_path / "copy.so")
    done = subprocess.run(
        [sys.executable, "-c", script, str(library), str(copy)], capture_output=True, text=True, check=True
    )
    one, two = ([int(at) for at in line.split()] for line in done.stdout.splitlines())
    assert one[0] >> 40 != two[0] >> 40
    assert [at % (1 << 38) for at in one] == [at % (1 << 38) for at in two]


def test_the_library_needs_nothing_of_the_c_library(library: Path) -> None:
    symbols = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"^ +(\w) (\S+)$", symbols, re.MULTILINE))
    assert {name for _, name in needed} <= ALLOWED
    assert {kind for kind, _ in needed} <= {"w"}
    dynamic = subprocess.run(
        ["readelf", "-d", str(library)], capture_output=True, text=True, check=True
    ).stdout
    assert "NEEDED" not in dynamic


def test_it_is_compiled_once_and_appears_atomically(tmp_path: Path) -> None:
    path = build_allocator(tmp_path / "a b: ü")
    made = path.stat().st_mtime_ns
    build_allocator.cache_clear()
    assert build_allocator(tmp_path / "a b: ü") == path
    assert path.stat().st_mtime_ns == made
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, f"{path.name}.sha256"}


def test_missing_and_unfit_compilers_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ToolchainError, match="no C compiler: no-such-compiler"):
        build_allocator(tmp_path / "one")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ToolchainError, match="false cannot compile"):
        build_allocator(tmp_path / "two")
    assert not list((tmp_path / "two").glob("allocator-1/*"))
    monkeypatch.delenv("CC")
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        build_allocator(tmp_path / "file")


def test_a_process_without_the_allocator_is_refused() -> None:
    with pytest.raises(ToolchainError, match="does not run with"):
        begin_heap()


def test_the_compilers_code_is_found_in_maps() -> None:
    maps = """\
55d0-55d4 r-xp 00000000 fe:00 1 /usr/bin/python3.11
1000-1800 r--p 00000000 fe:00 2 /v e n v/triton/_C/libtriton.so
1800-4000 r-xp 00000800 fe:00 2 /v e n v/triton/_C/libtriton.so
5000-5400 r-xp 00000800 fe:00 3 /usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30
6000-6400 r-xp 00000800 fe:00 3 /usr/lib/x86_64-linux-gnu/libc.so.6
7000-7400 rw-p 00000000 00:00 0
7400-7600 r-xp 00000000 00:00 0                          [vdso]
""".splitlines()
    assert compiler_ranges(maps) == [(0x1800, 0x2800), (0x5000, 0x400)]
    with pytest.raises(ToolchainError, match="0 pieces"):
        compiler_ranges(maps[:1])


def test_python_runs_on_it(library: Path) -> None:
    script = "import json, threading; print(len(json.dumps([bytes(n).hex() for n in range(2000)])))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(sum(2 * n + 4 for n in range(2000)))


def test_the_digest_is_that_of_the_source() -> None:
    assert re.fullmatch("[0-9a-f]{64}", allocator_digest())
