"""A rootfs in real engines: Docker Engine and podman report the computed ID."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.sandbox.rootfs.definitions import RootfsImage
from aotforge.sandbox.rootfs.image import bubblewrap_command, docker_archive, image_id, image_tag
from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, unpack_rootfs
from tests.support.debs import make_checkout


def engine(name: str) -> str:
    program = shutil.which(name)
    if program is None or subprocess.run([program, "info"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} does not run here")
    return program


@pytest.fixture
def image(tmp_path: Path) -> RootfsImage:
    checkout, _ = make_checkout(
        tmp_path, tmp_path / "mirror", packages={"one": [("usr/bin/true", b"", 0o755)]}
    )
    return ensure_rootfs(
        checkout, "small", cache=tmp_path / "cache", environment={}, observer=SILENT,
        sources=(str(tmp_path / "mirror"),),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_engines_report_the_computed_id(image: RootfsImage, tmp_path: Path, name: str) -> None:
    program = engine(name)
    archive = docker_archive(image, cache=tmp_path / "cache")
    subprocess.run([program, "load", "--input", str(archive)], check=True, capture_output=True)
    try:
        inspect = [program, "image", "inspect", image_tag(image)]
        found = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)[0]
        assert found["Id"].removeprefix("sha256:") == image_id(image).removeprefix("sha256:")
        assert found["RootFS"]["Layers"] == [f"sha256:{image.digest}"]
        assert "PATH=/usr/bin" in found["Config"]["Env"]
    finally:
        subprocess.run([program, "rmi", image_tag(image)], check=False, capture_output=True)


def test_bubblewrap_needs_no_folder_of_the_machine(image: RootfsImage, tmp_path: Path) -> None:
    program = shutil.which("bwrap") or pytest.skip("bubblewrap is not installed")
    command = bubblewrap_command(
        program, image, unpack_rootfs(image, cache=tmp_path / "cache"), ["/usr/bin/absent"]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Creating new namespace failed" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("this kernel does not let users create namespaces")
    assert "execvp /usr/bin/absent: No such file" in done.stderr
