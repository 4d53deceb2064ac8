"""dl for Windows and its test programs, built once by mingw-w64 and shared by test processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from aotforge.library.build_tools import MINGW_TARGET
from aotforge.library.build_windows import build_dl
from aotforge.library.sources import DLFCN_VARIABLE, DlManifest
from tests.support.runtime import CACHE, ROOT, tree_digest

GCC = f"{MINGW_TARGET}-gcc-posix"
PROGRAMS = ROOT / "runtime" / "tests" / "dl"
ORIGINAL_VARIABLE = "AOTFORGE_TEST_DLFCN_ARCHIVE"
"""Environment variable: dlfcn-win32-1.4.2.tar.gz, for running the original through the same programs."""

_SECONDS = 300
_PROGRAMS = {"interface": "-mconsole", "threads": "-mconsole", "paths": "-municode"}
_PLUGS = {"plug_a": ("a_only", 1), "plug_b": ("b_only", 2)}


@dataclass(frozen=True)
class DlPrograms:
    """`folder` holds dl.dll, the test programs and the modules that they open; `dl` is what build_dl made."""

    folder: Path
    dl: Path

    def program(self, name: str) -> Path:
        return self.folder / f"{name}.exe"


def missing_mingw() -> str:
    """Why nothing can be built for Windows here; empty when it can."""
    for tool, package in (
        (GCC, "g++-mingw-w64-x86-64-posix"),
        ("clang-19", "clang-19"),
        ("lld-link-19", "lld-19"),
        ("llvm-dlltool-19", "llvm-19"),
    ):
        if not shutil.which(tool):
            return f"{tool} is not installed (Debian: {package})"
    return ""


def manifest_for(archive: Path) -> DlManifest:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    pin = {"version": "1.4.2", "source": str(archive), "sha256": digest}
    return DlManifest.model_validate({"schema": 1, "dlfcn_win32": pin})


def original_manifest() -> DlManifest:
    """The pin of dlfcn-win32's own archive that manifests/dl.yaml has as a comment."""
    text = (ROOT / "manifests" / "dl.yaml").read_text()
    example = text[text.index("# dlfcn_win32:") :].replace("# ", "")
    return DlManifest.model_validate({"schema": 1, **yaml.safe_load(example)})


def original_programs(folder: Path | None = None) -> DlPrograms:
    """Built against dlfcn-win32's own archive; skips the test where the variable names none. Raises RuntimeBuildError for another archive:
    .ci/run names a file above the checkout, where another user may write."""
    archive = os.environ.get(ORIGINAL_VARIABLE)
    if not archive:
        pytest.skip(
            f"{ORIGINAL_VARIABLE} does not name dlfcn-win32's archive, which cannot be fetched in tests"
        )
    return dl_programs(Path(archive), manifest=original_manifest(), folder=folder)


def compile_c(*words: str | Path) -> None:
    command = [GCC, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-static", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr


def dl_programs(
    archive: Path | None = None,
    *,
    manifest: DlManifest | None = None,
    folder: Path | None = None,
    programs: tuple[str, ...] = tuple(_PROGRAMS),
) -> DlPrograms:
    """Built against aotforge's dl, or against `archive`, which `manifest` pins, else its own digest; in the cache unless `folder` is
    given."""
    manifest = manifest or (manifest_for(archive) if archive else DlManifest(schema=1))
    facts = (
        tree_digest(ROOT / "runtime" / "dl")
        + tree_digest(PROGRAMS)
        + Path(__file__).read_text()
        + repr(manifest)
    )
    folder = folder or CACHE / "dl-tests" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            dl = build_dl(
                ROOT,
                output=folder / "dl",
                cache=folder if archive else CACHE,
                manifest=manifest,
                environment=dict(os.environ) | ({DLFCN_VARIABLE: str(archive)} if archive else {}),
            )
            _build(dl.folder, folder / "programs", programs)
            (folder / "done").touch()
    return DlPrograms(folder / "programs", folder / "dl")


def _build(dl: Path, folder: Path, programs: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shared: list[str | Path] = ["-DDLFCN_WIN32_SHARED", "-I", dl / "include"]
    library = dl / "lib" / "libdl.dll.a"
    for name, (only, number) in _PLUGS.items():
        definition: list[str | Path] = [PROGRAMS / "plug_a.def"] if name == "plug_a" else []
        compile_c(
            *shared, f"-DNAME_ONLY={only}", f"-DID={number}", "-shared", PROGRAMS / "plug.c", *definition, library,
            "-o", folder / f"{name}.dll",
        )  # fmt: skip
    compile_c(*shared, "-shared", PROGRAMS / "plug_init.c", library, "-o", folder / "plug_init.dll")
    for name in programs:
        option = _PROGRAMS[name]
        compile_c(*shared, option, PROGRAMS / f"{name}.c", library, "-o", folder / f"{name}.exe")
        static: list[str | Path] = [
            "-I",
            dl / "include",
            option,
            PROGRAMS / f"{name}.c",
            dl / "lib" / "libdl.a",
        ]
        compile_c(*static, "-o", folder / f"{name}_static.exe")
    shutil.copy(dl / "lib" / "dl.dll", folder)
    (folder / "bad.dll").write_text("no module, but a text\n")
