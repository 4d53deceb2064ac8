"""A release made as users make one, from a clone that may release `smoke`, on an S3 server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.checkouts import HOME, ROOT, copy_checkout, invoke, shrink_smoke
from tests.support.rootfs import cache
from tests.support.s3 import Server
from vgpu.hip.build_hip import build_virtual_hip, environment

RELEASE = "0.11.2b-r1"
WANTED = ("--version", "0.11.2b", "--arch", "gfx908", "--profile", "smoke", "--no-windows", "--wheels")
CLIENTS = ROOT / "tests" / "fixtures" / "clients"
HEAD_DIM = "32"
"""The one that `smoke` has images for."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A release manager: a clone, keys for signatures and index, a bucket."""

    checkout: Path
    folder: Path
    server: Server
    bucket: str

    @property
    def to(self) -> str:
        return f"s3://{self.bucket}/aot"

    @property
    def url(self) -> str:
        """The bucket's address over plain HTTP."""
        return f"{self.server.url}/{self.bucket}/aot/"

    @property
    def root(self) -> Path:
        return self.folder / "keys" / "roots" / "1.root.json"

    @property
    def finished(self) -> Path:
        return self.checkout / "releases" / "dist" / "finished" / RELEASE

    def run(self, *arguments: str | Path, code: int = 0, env: dict[str, str] | None = None) -> str:
        """A task's standard output, or its errors when it is to fail with `code`."""
        settings = self.server.environment() | {"AOTFORGE_CACHE": str(cache())} | (env or {})
        done = invoke(self.checkout, *map(str, arguments), env=settings, check=False)
        assert done.returncode == code, f"{arguments} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    def release(self, *more: str | Path, code: int = 0, executor: str = "bubblewrap") -> str:
        """`./dev release` of the profile `smoke`."""
        key = ("--key", self.folder / "key.pem")
        return self.run("release", *WANTED, "--executor", executor, *key, *more, code=code)

    def publication(self) -> tuple[str | Path, ...]:
        """The flags that publish it."""
        return ("--to", self.to, "--keys", self.folder / "keys")

    def git(self, *arguments: str) -> str:
        """Git in the clone, without the user's own settings."""
        command = ["git", "-c", "user.name=tests", "-c", "user.email=tests@example.org", *arguments]
        return subprocess.run(
            command, cwd=self.checkout, check=True, capture_output=True, text=True
        ).stdout.strip()

    def first_commit(self) -> str:
        """The one that was released, whatever came after."""
        return self.git("rev-list", "--max-parents=0", "HEAD")

    def commit(self, why: str) -> str:
        """Everything in the clone as a commit; its id."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", why)
        return self.git("rev-parse", "HEAD")


def make_user(folder: Path, server: Server, *, bucket: str = "") -> User:
    """A clone at its first commit, keys and an empty bucket (or `bucket`, where none is needed)."""
    checkout = copy_checkout(folder / "checkout")
    shrink_smoke(checkout)
    profiles = checkout / "manifests" / "profiles.yaml"
    head, _, rest = profiles.read_text().partition("  smoke:")
    assert "complete: false" in rest
    profiles.write_text(f"{head}  smoke:{rest.replace('complete: false', 'complete: true', 1)}")
    user = User(checkout=checkout, folder=folder, server=server, bucket=bucket or server.bucket())
    user.git("init", "--quiet", "--initial-branch", "main")
    user.commit("sources")
    for command in (
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem"],
        ["openssl", "pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    user.run("release.keys", "--create", folder / "keys")
    return user


def virtual_mi100(user: User) -> dict[str, str]:
    """The environment of a program that runs on one, with the release's assembly texts."""
    cached = HOME / "cache"
    asm = user.finished / f"aotriton-{RELEASE}-asm-amd-gfx908.tar.gz"
    settings = environment(build_virtual_hip(cached), devices=["gfx908"], texts=[asm], cache=cached)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AOTRITON_")}
    return clean | settings | {"AOTRITON_LOG": "off"}


def hip_library() -> Path:
    return build_virtual_hip(HOME / "cache").library


def build_client(folder: Path, pins: str, *, env: dict[str, str] | None = None) -> Path:
    """The program of tests/fixtures/clients, built as PyTorch is, with these lines in aotriton.cmake."""
    folder.mkdir()
    shutil.copytree(CLIENTS, folder / "clients")
    (folder / "pins.cmake").write_text(pins)
    settings = {
        "AOTRITON_PINS": folder / "pins.cmake", "ROCM_VERSION": "7.0", "ROCM_ARCHS": "gfx908",
        "HIP_INCLUDE_DIR": ROOT / "runtime" / "src" / "standin", "HIP_LIBRARY": hip_library(),
    }  # fmt: skip
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    build = folder / "build"
    for command in (
        ["cmake", "-G", "Ninja", "-S", str(folder / "clients" / "pytorch_like"), "-B", str(build), *flags],
        ["cmake", "--build", str(build)],
    ):
        done = subprocess.run(
            command, env=os.environ | (env or {}), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "client"


def attention(user: User, program: Path) -> tuple[int, str]:
    """Exit status and output of attention by `program`, which holds its results against float64."""
    done = subprocess.run(
        [program, "numbers", HEAD_DIM], env=virtual_mi100(user), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout


def json_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
