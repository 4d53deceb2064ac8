"""`doctor` on broken environments: each is named, with its cure, and fails what needs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from aotforge.deliver.dropin.inputs import IMAGES
from aotforge.devtools import doctor
from aotforge.devtools.doctor import DoctorReport, Finding, Request, examine
from aotforge.errors import ToolchainError, UnknownNameError, UnsupportedError
from aotforge.formats.library_alias import library_alias
from aotforge.pack.model import DISPATCH_FILE
from tests.support.families import PROJECT
from tests.support.other_user import as_other_user
from tests.support.torch_lib import make_torch


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def request(
    tmp_path: Path,
    *,
    root: Path = PROJECT,
    cache: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Request:
    return Request(
        root=root,
        cache=cache or tmp_path / "cache",
        output=tmp_path / "output",
        environment=dict(os.environ) if environment is None else environment,
    )


def finding(name: str, wanted: Request) -> Finding:
    """Of one check, which must exist."""
    return doctor.find(name, wanted, needed=True)


def failure(name: str, wanted: Request) -> str:
    """What one check reports, which must have a next step or a cause."""
    error = finding(name, wanted).error
    assert error is not None and (error.hint or error.cause)
    return str(error)


def test_a_machine_that_builds_passes(tmp_path: Path) -> None:
    """This suite builds here, so every check of `build` holds."""
    report = examine(request(tmp_path))
    report.require_passed()
    assert {one.name for one in report.findings if one.needed} == {
        "Triton", "compilers", "memory", "cache", "temporary files", "output"
    }  # fmt: skip
    assert all(one.found for one in report.findings if one.needed)
    assert not (tmp_path / "cache").exists() and list(tmp_path.iterdir()) == []


def test_an_unknown_purpose(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown purpose biuld"):
        examine(request(tmp_path), ["biuld"])


def test_what_is_not_needed_does_not_fail() -> None:
    error = UnknownNameError("no mingw", cause="not there", hint="get it")
    missing = Finding(name="Windows compilers", purpose="windows", needed=False, error=error)
    report = DoctorReport(purposes=("build",), findings=(missing,))
    report.require_passed()
    assert report.lines() == ["no     Windows compilers  no mingw (needed for windows)"]
    needed = DoctorReport(
        purposes=("windows",),
        findings=(Finding(name="Windows compilers", purpose="windows", needed=True, error=error),),
    )
    assert needed.lines() == ["FAILS  Windows compilers  no mingw: get it"]
    with pytest.raises(ToolchainError, match="windows would fail here: Windows compilers"):
        needed.require_passed()


def test_no_compiler(tmp_path: Path) -> None:
    assert "no C++ compiler found" in failure(
        "compilers", request(tmp_path, environment={"PATH": str(tmp_path)})
    )


def test_another_triton_than_the_pinned_one(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "build.in").write_text("triton==3.8.0\n")
    assert "Triton 3.9.0 is installed, 3.8.0 is needed" in failure("Triton", request(tmp_path, root=tmp_path))


def test_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_memory", lambda: 1 << 30)
    assert "1.0 GiB of memory are free" in failure("memory", request(tmp_path))


@pytest.mark.parametrize("name", ["cache", "temporary files", "output"])
def test_a_full_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, (1 << 40) - (1 << 28), 1 << 28))
    assert "0.25 GiB are free in" in failure(name, request(tmp_path))


def test_a_cache_that_cannot_be_written_or_reached_is_a_line() -> None:
    def check(folder: Path) -> None:
        assert "cannot be written" in failure("cache", request(folder, cache=folder / "cache"))
        assert "Permission denied" in failure("cache", request(folder, cache=folder / "closed" / "cache"))

    def prepare(folder: Path) -> None:
        (folder / "cache").mkdir(mode=0o555)
        (folder / "closed").mkdir(mode=0)

    as_other_user(check, prepare=prepare)


def test_no_container_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    text = failure("containers", request(tmp_path))
    assert (
        all(name in text for name in ("docker: ", "podman: ", "bubblewrap: ")) and "--executor local" in text
    )


@pytest.mark.parametrize(
    ("archs", "shown"),
    [((), "images: amd-gfx90a"), (("gfx908", "gfx90a"), "images: gfx908 none, gfx90a yes")],
)
def test_an_installed_pytorch_gets_its_name_level_and_images(
    archs: tuple[str, ...], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def native() -> tuple[str, ...]:
        if not archs:
            raise UnsupportedError("no GPU")
        return archs

    torch = make_torch(tmp_path)
    monkeypatch.setattr(doctor, "native_archs", native)
    monkeypatch.setattr(doctor, "find_torch_lib", lambda environment: torch.folder)
    monkeypatch.setattr(doctor, "read_torch_lib", lambda folder: torch)
    found = finding("PyTorch", request(tmp_path)).found
    assert "needs libaotriton_v2.so.0.11.0: ./dev build --version 0.11.2b serves it; " in found
    assert found.endswith(shown)


@pytest.mark.parametrize(
    ("library", "unread"), [("ours", "gfx120x: AOT"), ("theirs", "gfx908: this project's")]
)
def test_packs_that_the_installed_library_does_not_read_are_named(
    library: str, unread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "native_archs", lambda: ("gfx908", "gfx1201"))
    lib = tmp_path / "lib"
    for name in ("amd-gfx120x/flash/attn_fwd.zip", f"amd-gfx908/{DISPATCH_FILE}"):
        (lib / IMAGES / name).parent.mkdir(parents=True)
        (lib / IMAGES / name).touch()
    (lib / "libaotriton_v2.so.0.12.1").write_bytes(b"\0dispatch.aotd\0" if library == "ours" else b"ELF")
    found = doctor._installed_images(lib, ["libaotriton_v2.so.0.12.1"])
    served = "gfx908 yes, gfx1201 none" if library == "ours" else "gfx908 none, gfx1201 yes"
    assert found.startswith(f"images: {served}; amd-{unread}")
    assert found.endswith(", which the installed library does not read")


def test_the_task_fails_with_its_code_and_as_json(tmp_path: Path) -> None:
    environment = dict(os.environ) | {"AOTFORGE_CACHE": str(tmp_path / "ca$he")}
    done = subprocess.run(
        [str(PROJECT / "dev"), "doctor", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    found = json.loads(done.stdout)
    (cache,) = [one for one in found["checks"] if one["name"] == "cache"]
    assert not cache["ok"] and cache["needed"] and cache["error"]["kind"] == "cache"
    assert found["error"]["kind"] == "toolchain" and "cache" in found["error"]["what"]


def with_torch(tmp_path: Path, needed: str) -> Request:
    """An environment whose Python finds a PyTorch for ROCm that needs this library."""
    lib = tmp_path / "site" / "torch" / "lib"
    lib.mkdir(parents=True)
    (lib / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", needed))
    python = tmp_path / "venv" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho {lib.parent / '__init__.py'}\n")
    python.chmod(0o755)
    return request(tmp_path, environment={**os.environ, "VIRTUAL_ENV": str(tmp_path / "venv")})


def test_a_pytorch_of_an_unknown_feature_release_is_not_ok(tmp_path: Path) -> None:
    wanted = with_torch(tmp_path, "libaotriton_v2.so.0.99.0")
    assert "no API level of this checkout serves libaotriton_v2.so.0.99.0" in failure("PyTorch", wanted)
    found = finding("PyTorch", wanted)
    (line,) = DoctorReport(purposes=("build",), findings=(replace(found, needed=False),)).lines()
    assert line.startswith("no ")


def test_a_device_wheel_without_its_family_is_named(tmp_path: Path) -> None:
    wanted = with_torch(tmp_path, "libaotriton_v2.so.0.12.50")
    assert ": ./dev build --version 0.12.1b serves it; images: " in finding("PyTorch", wanted).found
    (tmp_path / "site" / "amd_torch_device_gfx1100-2.11.0+rocm7.14.0.dist-info").mkdir()
    found = finding("PyTorch", wanted).found
    assert "amd-torch-device-gfx1100 is installed without the wheel of its family" in found
    assert "amd-torch-device-gfx110x==2.11.0+rocm7.14.0" in found
