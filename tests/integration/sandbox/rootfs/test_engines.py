"""A root in real engines: Docker Engine and podman report the ID that was computed, and a registry's image by digest becomes a root."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.docker_image import docker_archive, image_id, image_tag
from aotforge.sandbox.rootfs.resolve_lock import lock_rootfs
from aotforge.sandbox.rootfs.rootfs import RootfsImage
from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, find_rootfs, unpack_rootfs
from aotforge.sandbox.rootfs.shell import bubblewrap_command
from tests.support.debs import make_checkout


def engine(name: str) -> str:
    program = shutil.which(name)
    if program is None or subprocess.run([program, "info"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} does not run here")
    return program


@pytest.fixture
def root(tmp_path: Path) -> RootfsImage:
    checkout, _ = make_checkout(
        tmp_path, tmp_path / "mirror", packages={"one": [("usr/bin/true", b"", 0o755)]}
    )
    return ensure_rootfs(
        checkout, "small", cache=tmp_path / "cache", environment={}, observer=SILENT,
        sources=(str(tmp_path / "mirror"),),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_engines_report_the_computed_id(root: RootfsImage, tmp_path: Path, name: str) -> None:
    program = engine(name)
    archive = docker_archive(root, cache=tmp_path / "cache")
    subprocess.run([program, "load", "--input", str(archive)], check=True, capture_output=True)
    try:
        inspect = [program, "image", "inspect", image_tag(root)]
        found = json.loads(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout)[0]
        assert found["Id"].removeprefix("sha256:") == image_id(root).removeprefix("sha256:")
        assert found["RootFS"]["Layers"] == [f"sha256:{root.digest}"]
        assert "PATH=/usr/bin" in found["Config"]["Env"]
    finally:
        subprocess.run([program, "rmi", image_tag(root)], check=False, capture_output=True)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("docker-registry") or pytest.skip("docker-registry is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "registry.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/registry}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    process = subprocess.Popen(
        [program, "serve", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_registry_image_by_digest(root: RootfsImage, tmp_path: Path, registry: str) -> None:
    program = engine("docker")
    name = f"{registry}/base"

    def docker(*arguments: str) -> str:
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout

    docker("load", "--input", str(docker_archive(root, cache=tmp_path / "cache")))
    docker("tag", image_tag(root), f"{name}:1")
    docker("push", f"{name}:1")
    pinned = json.loads(docker("image", "inspect", f"{name}:1"))[0]["RepoDigests"][0]
    docker("rmi", f"{name}:1", image_tag(root))
    checkout = tmp_path / "other"
    (checkout / "manifests").mkdir(parents=True)
    manifest = {"schema": 1, "roots": {"base": {"image": pinned, "environment": {"PATH": "/usr/bin"}}}}
    (checkout / "manifests" / "containers.yaml").write_text(json.dumps(manifest))
    try:
        locked = lock_rootfs(checkout, "base", cache=tmp_path / "c1", environment={}, observer=SILENT)
        assert "usr/bin/true" in find_rootfs(checkout, "base").members_file.read_text()
        docker("rmi", pinned)
        # another cache and a new pull: the lock's digest decides
        made = ensure_rootfs(checkout, "base", cache=tmp_path / "c2", environment={}, observer=SILENT)
        assert made.digest == locked.digest
        assert (unpack_rootfs(made, cache=tmp_path / "c2") / "usr" / "bin" / "true").exists()
        missing = {"roots": {"base": {"image": f"{name}@sha256:{'0' * 64}"}}, "schema": 1}
        (checkout / "manifests" / "containers.yaml").write_text(json.dumps(missing))
        with pytest.raises(ContainerError, match="does not match its definition"):
            ensure_rootfs(checkout, "base", cache=tmp_path / "c2", environment={}, observer=SILENT)
        with pytest.raises(ContainerError, match="cannot be pulled"):
            lock_rootfs(checkout, "base", cache=tmp_path / "c2", environment={}, observer=SILENT)
    finally:
        subprocess.run([program, "rmi", pinned], check=False, capture_output=True)


def test_bubblewrap_needs_no_folder_of_the_machine(root: RootfsImage, tmp_path: Path) -> None:
    program = shutil.which("bwrap") or pytest.skip("bubblewrap is not installed")
    command = bubblewrap_command(
        program, root, unpack_rootfs(root, cache=tmp_path / "cache"), ["/usr/bin/absent"]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Creating new namespace failed" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("this kernel lets nobody make namespaces")
    assert "execvp /usr/bin/absent: No such file" in done.stderr
