"""The rootfs images of this checkout, built from their locks and entered."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError
from aotforge.formats.deb import data_members
from aotforge.sandbox.rootfs.cache_files import CachePaths
from aotforge.sandbox.rootfs.definitions import RootfsImage, find_rootfs, read_lock
from aotforge.sandbox.rootfs.fetch import DEBIAN, apt_settings
from aotforge.sandbox.rootfs.image import bubblewrap_command
from aotforge.sandbox.rootfs.resolve_packages import private_apt
from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, unpack_rootfs

ROOT = Path(__file__).parents[4]
CACHE = Path(
    os.environ.get("AOTFORGE_CACHE") or Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"
)

Enter = Callable[[str], str]


def made(name: str) -> RootfsImage:
    try:
        return ensure_rootfs(ROOT, name, cache=CACHE, environment=os.environ, observer=SILENT)
    except ContainerError as error:
        if "cannot be fetched" in error.what:
            pytest.skip(f"no reachable mirror: {error.cause[:200]}")
        raise


def enter(name: str) -> Enter:
    program = shutil.which("bwrap") or pytest.skip("bubblewrap is not installed")
    root = made(name)
    tree = unpack_rootfs(root, cache=CACHE)

    def run(line: str) -> str:
        command = bubblewrap_command(program, root, tree, ["/bin/sh", "-ec", line])
        command[1:1] = ["--dir", "/tmp"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Creating new namespace failed" in done.stderr:
            pytest.skip("this kernel does not let users create namespaces")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_rocm_kernels_has_triton_and_nothing_to_compile_c_with() -> None:
    run = enter("rocm-kernels")
    printed = run(
        "python3 -W ignore -c 'import sys, triton, zstandard, triton._C.libtriton as t; print(sys.version_info[:2], triton.__version__)';"
        "id -u; touch /x 2>/dev/null && echo writable; (: >>/proc/sys/kernel/core_pattern) 2>/dev/null && echo open;"
        "for x in gcc cc ptxas clang; do ! command -v $x; done"
    )
    assert printed.splitlines() == ["(3, 11) 3.9.0", "1000"]


def test_rocm_runtime_is_debian_11_with_real_hip_headers() -> None:
    run = enter("rocm-runtime")
    printed = run(
        "getconf GNU_LIBC_VERSION; g++ -dumpversion; cmake --version | head -1; ninja --version; python3 --version; cd /tmp;"
        "echo '#define __HIP_PLATFORM_AMD__ 1\n#include <hip/hip_runtime.h>\n#include <iostream>\n"
        "int main() { std::cout << HIP_VERSION_MAJOR << std::endl; }' >a.cpp;"
        "g++ -std=c++17 a.cpp -o a -static-libstdc++ -static-libgcc; ./a; objdump -p a | grep -c libstdc++ || true"
    )
    assert printed.splitlines() == [
        "glibc 2.31",
        "10",
        "cmake version 3.18.4",
        "1.10.1",
        "Python 3.9.2",
        "5",
        "0",
    ]


@pytest.mark.slow
def test_windows_noimage_links_a_dll_and_makes_an_import_library() -> None:
    """20 s to download and to unpack, for this test alone. Its bytes are locked; tests/unit compares each lock with its definition."""
    run = enter("windows-noimage")
    printed = run(
        "cd /tmp; printf '#include <mutex>\nextern \"C\" __declspec(dllexport) int f() { static std::mutex m; m.lock(); return 3; }' >a.cpp;"
        "x86_64-w64-mingw32-g++ -std=c++17 -shared a.cpp -o a.dll -static; printf 'LIBRARY a.dll\nEXPORTS\n f\n' >a.def;"
        "llvm-lib /def:a.def /machine:x64 /out:a.lib; x86_64-w64-mingw32-nm a.lib | grep -c ' T f'; cmake --version | head -1;"
        "! command -v wine"
    )
    assert printed.splitlines() == ["1", "cmake version 3.25.1"]


@pytest.mark.slow
def test_again_from_another_folder_without_any_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ensure_rootfs refuses other bytes than the lock's, so that it returns is the comparison. By default the first build of a rootfs is
    compared with its lock too, which was written elsewhere; tests/unit/sandbox/rootfs/test_cache.py has other paths and no mirror."""
    made("rocm-runtime")
    cache = tmp_path / "another cache ü"
    places = CachePaths(cache=cache)
    places.base.mkdir(parents=True)
    places.store.folder.symlink_to(CachePaths(cache=CACHE).store.folder)
    monkeypatch.setattr("aotforge.sandbox.rootfs.fetch.opened", None)
    again = ensure_rootfs(ROOT, "rocm-runtime", cache=cache, environment={}, observer=SILENT)
    assert again.digest == read_lock(find_rootfs(ROOT, "rocm-runtime").lock_file).digest


def test_packages_are_read_as_dpkg_reads_them() -> None:
    program = shutil.which("dpkg-deb") or pytest.skip("dpkg-deb is not installed")
    made("rocm-runtime")
    lock = read_lock(find_rootfs(ROOT, "rocm-runtime").lock_file)
    packages = [entry for entry in lock.packages if entry.name in {"dash", "coreutils", "zlib1g"}]
    assert len(packages) == 3
    for package in packages:
        path = CachePaths(cache=CACHE).store.path(package.sha256)
        ours = [
            (info.name, hashlib.sha256(data.read()).hexdigest() if data else "")
            for info, data in data_members(path)
        ]
        listed = subprocess.run(
            [program, "--fsys-tarfile", str(path)], capture_output=True, check=True
        ).stdout
        theirs = []
        with tarfile.open(fileobj=io.BytesIO(listed)) as archive:
            for info in archive:
                content = archive.extractfile(info) if info.isreg() else None
                theirs.append((info.name, hashlib.sha256(content.read()).hexdigest() if content else ""))
        assert ours == theirs


def test_apt_resolves_in_a_folder_of_its_own() -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not on this machine")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in Path("/var/lib/apt/lists").glob("*"))
    try:
        with private_apt("bullseye", apt_settings()) as apt:
            assert "Inst dash " in apt.run("apt-get", "--simulate", "install", "dash")
            with pytest.raises(ContainerError, match="no-such-package"):
                apt.run("apt-get", "--simulate", "install", "no-such-package")
    except ContainerError as error:
        if "no reachable archive" in error.what:
            pytest.skip(error.cause)
        raise
    assert (
        sorted((path.name, path.stat().st_mtime_ns) for path in Path("/var/lib/apt/lists").glob("*"))
        == before
    )


def test_archives_of_this_machine() -> None:
    found = apt_settings()
    assert set(DEBIAN) <= set(found.archives)
    assert all(not archive.endswith("/") for archive in found.archives)
