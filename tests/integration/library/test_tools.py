"""Tools that are scripts: their part of a build's key, and the error when they do not run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aotforge.errors import CacheError, ToolchainError
from aotforge.library.build_linux import build_runtime
from aotforge.library.build_tools import Tools, find_tools
from aotforge.library.library_build import LibraryRequest, inputs_key
from aotforge.library.sources import load_runtime_manifest

ROOT = Path(__file__).parents[3]
MANIFEST = load_runtime_manifest(ROOT / "manifests")

_COMPILER = """#!/bin/sh
case "$1" in
  --version) echo "NAME 12"; echo "more";;
  -dumpmachine) echo x86_64-linux-gnu;;
  -print-prog-name=ld) echo ld;;
  -print-file-name=*) if [ -f FOLDER/lib/${1#*=} ]; then echo FOLDER/lib/${1#*=}; else echo ${1#*=}; fi;;
  *) exit 1;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A PATH with everything that a build needs, made of scripts, and two libraries in lib/."""
    for name in ("g++", "gcc"):
        script(tmp_path / name, _COMPILER.replace("NAME", name).replace("FOLDER", str(tmp_path)))
    for name in ("cmake", "ninja", "ld"):
        script(tmp_path / name, f"#!/bin/sh\necho {name} version 1\n")
    (tmp_path / "lib").mkdir()
    for name in ("libstdc++.a", "libc.so.6"):
        (tmp_path / "lib" / name).write_text(name)
    return tmp_path


def tools(folder: Path) -> Tools:
    return find_tools({"PATH": str(folder)})


def key(folder: Path) -> str:
    return inputs_key(manifest=MANIFEST.api_level, sources="sources", tools=tools(folder).identity)


@pytest.mark.parametrize("name", ["g++", "gcc", "cmake", "ld", "lib/libstdc++.a", "lib/libc.so.6"])
def test_each_tool_and_library_enters_the_key(folder: Path, name: str) -> None:
    before = key(folder)
    assert key(folder) == before
    changed = folder / name
    text = changed.read_text()
    newer = text.replace(" 12", " 13").replace("version 1", "version 2")
    changed.write_text(newer if newer != text else text + "!")
    assert key(folder) != before


def test_what_a_compiler_does_not_have_is_no_part_of_the_key(folder: Path) -> None:
    before = dict(tools(folder).identity)
    (folder / "lib" / "libstdc++.a").unlink()
    (folder / "ld").unlink()
    after = dict(tools(folder).identity)
    assert (after["libstdc++.a"], after["linker"]) == ("", "")
    assert {name for name in after if after[name] != before[name]} == {"libstdc++.a", "linker"}


@pytest.mark.parametrize("name", ["g++", "gcc", "cmake", "ld"])
def test_a_tool_whose_interpreter_is_gone_is_named(folder: Path, name: str) -> None:
    script(folder / name, "#!/nowhere/bin/python\n")
    with pytest.raises(ToolchainError) as caught:
        tools(folder)
    assert str(folder / name) in caught.value.what
    assert "interpreter is gone" in caught.value.cause
    assert "apt-get install" in caught.value.hint


def test_a_full_cache_is_the_caches_fault(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("aotforge.base.files.tempfile.mkdtemp", full)
    with pytest.raises(CacheError, match="No space left") as caught:
        build_runtime(LibraryRequest(root=ROOT, cache=tmp_path / "cache", environment={"PATH": str(folder)}))
    assert caught.value.cause == "the disk is full"
    assert str(tmp_path / "cache") in caught.value.hint and "output" not in caught.value.hint
