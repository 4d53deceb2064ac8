"""Programs of other people against a release: fetched as PyTorch fetches it, and found with find_package.

The library, the HIP double and the images are real: nothing of the release is made up here but the choice
of images.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from aotforge.deliver.pytorch.pins import pins_text
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.release.model import PackInput
from aotforge.release.release import Release
from tests.integration.release.real import CACHE, Runtime, runtime_and_double, small_attention, unpack
from tests.integration.release.standin import MANIFEST, assemble, records
from tests.support.web import served
from vgpu.hip.build_hip import build_virtual_hip, environment

CLIENTS = Path(__file__).parents[2] / "fixtures" / "clients"
ROCM = "7.1"

pytestmark = pytest.mark.compiler


class BuildFailedError(Exception):
    """A client did not configure or build; CMake's output."""


@dataclass(frozen=True, kw_only=True)
class Made:
    release: Release
    runtime: Runtime

    def unpack(self, folder: Path) -> Path:
        """The prefix of library and images in `folder`."""
        for kind in (f"{self.release.contents.platform}-rocm{ROCM}-shared", "images-amd-gfx908"):
            unpack(self.release.folder / f"aotriton-{MANIFEST.name}-{kind}.tar.gz", folder)
        return folder / "aotriton"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("release")
    runtime = runtime_and_double(folder / "double")
    plan, images = small_attention()
    pack = write_pack(plan, images, release=MANIFEST.name, compressor=MANIFEST.compressor)
    verify_pack(open_files(pack), plan, images)
    texts = {image.digest: image.asm for image in images}
    packed = PackInput(pack=pack, assembly=texts, records=records(plan, images))
    return Made(release=assemble(runtime.prefix, folder / "dist", packed), runtime=runtime)


def cmake(source: str, build: Path, *definitions: str) -> None:
    """Configure and build; BuildFailedError with the output when either fails."""
    # a folder of its own: the client is built as a stranger would, with nothing of this project around it
    sources = build.parent / "clients"
    if not sources.exists():
        shutil.copytree(CLIENTS, sources)
    flags = [f"-D{definition}" for definition in definitions]
    for command in (
        ["cmake", "-G", "Ninja", "-S", str(sources / source), "-B", str(build), *flags],
        ["cmake", "--build", str(build)],
    ):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise BuildFailedError(done.stdout)


def fetch(
    made: Made, build: Path, base: str, *, archs: str = "gfx908", rocm: str = ROCM, pins: str | None = None
) -> None:
    """As a PyTorch build whose pins name the release at `base`."""
    file = build.parent / "pins.cmake"
    file.write_text(pins or pins_for(made, base))
    cmake(
        "pytorch_like",
        build,
        f"AOTRITON_PINS={file}",
        f"ROCM_VERSION={rocm}",
        f"ROCM_ARCHS={archs}",
        f"HIP_INCLUDE_DIR={made.runtime.hip_headers}",
        f"HIP_LIBRARY={made.runtime.hip_double / 'libamdhip64.so.7'}",
    )


def pins_for(made: Made, base: str) -> str:
    release = Release.open(made.release.folder)
    return pins_text(release, base_url=base, commit="a" * 40, environment_url=False)


def output_of(command: Sequence[str | Path], settings: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and output of a client."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AOTRITON_")}
    done = subprocess.run(
        command, env={**clean, **settings, "AOTRITON_LOG": "off"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout


def run(
    made: Made, client: Path, tmp_path: Path, *paths: Path, mode: tuple[str, ...] = ()
) -> tuple[int, str, list[dict[str, object]]]:
    """Exit status, output, and what the HIP double saw."""
    record = tmp_path / "record.jsonl"
    environment = {
        "LD_LIBRARY_PATH": ":".join(map(str, (*paths, made.runtime.hip_double))),
        "HIP_DOUBLE_DEVICES": "gfx908:sramecc+:xnack-@120",
        "HIP_DOUBLE_RECORD": str(record),
    }
    done = output_of([client, *mode], environment)
    lines = record.read_text().splitlines() if record.exists() else []
    return *done, [json.loads(line) for line in lines]


def run_numbers(made: Made, client: Path) -> tuple[int, str]:
    """Exit status and output of the client on a virtual MI100, where it compares its results with float64."""
    asm = made.release.folder / f"aotriton-{MANIFEST.name}-asm-amd-gfx908.tar.gz"
    settings = environment(build_virtual_hip(CACHE), devices=["gfx908"], texts=[asm], cache=CACHE)
    return output_of([client, "numbers"], settings)


def file_url(folder: Path) -> str:
    return f"file://{folder}/"


def launched(seen: Sequence[dict[str, object]]) -> list[object]:
    return [line.get("kernel") for line in seen if "kernel" in line and "grid" in line]


def test_client_that_fetches_like_pytorch(made: Made, tmp_path: Path) -> None:
    build = tmp_path / "build"
    with served(made.release.folder.parent) as (url, log):
        fetch(made, build, url)
    assert sum("200" in line for line in log) == 2  # one runtime, one pack
    torch = build / "torch"
    for name in ("libaotriton_v2.so", MANIFEST.soname, *MANIFEST.other_names):
        assert (torch / "lib" / name).is_file()
    assert (torch / "lib" / "aotriton.images" / "amd-gfx908" / "__signature__").is_file()
    status, output, seen = run(made, build / "client", tmp_path)
    assert (status, output) == (0, "client: as expected\n")
    assert launched(seen) == ["attn_fwd"]
    assert run_numbers(made, build / "client") == (0, "client: right numbers\n")
    # the comparison is one: the double computes nothing
    status, output, _ = run(made, build / "client", tmp_path, mode=("numbers",))
    assert status != 0 and "wrong elements" in output


def test_client_that_uses_find_package(made: Made, tmp_path: Path) -> None:
    prefix = made.unpack(tmp_path / "prefix")
    build = tmp_path / "build"
    cmake(
        "find_package_client",
        build,
        f"CMAKE_PREFIX_PATH={prefix}",
        f"HIP_INCLUDE_DIR={made.runtime.hip_headers}",
        f"HIP_LIBRARY={made.runtime.hip_double / 'libamdhip64.so.7'}",
    )
    status, output, seen = run(made, build / "client", tmp_path)
    assert (status, output) == (0, "client: as expected\n")
    assert launched(seen) == ["attn_fwd"]
    # a prefix that moved still works: nothing in it knows where it was
    moved = tmp_path / "moved"
    prefix.rename(moved)
    status, output, _ = run(made, build / "client", tmp_path, moved / "lib")
    assert (status, output) == (0, "client: as expected\n")


def test_older_library_names_serve_programs_linked_against_them(made: Made, tmp_path: Path) -> None:
    """An installed program that needs libaotriton_v2.so.0.11.0 starts with this library dropped in."""
    build = tmp_path / "build"
    fetch(made, build, file_url(made.release.folder.parent))
    client = (build / "client").read_bytes()
    assert MANIFEST.soname.encode() in client
    for older in MANIFEST.other_names:
        (build / older).write_bytes(client.replace(MANIFEST.soname.encode(), older.encode()))
        (build / older).chmod(0o755)
        status, output, _ = run(made, build / older, tmp_path)
        assert (status, output) == (0, "client: as expected\n")


def test_architecture_without_a_pack_fetches_none_and_fails_at_run_time(made: Made, tmp_path: Path) -> None:
    build = tmp_path / "build"
    fetch(made, build, file_url(made.release.folder.parent), archs="gfx906")
    assert not (build / "torch" / "lib" / "aotriton.images").exists()
    status, output, seen = run(made, build / "client", tmp_path)
    assert status != 0
    assert "check_gpu" in output
    assert launched(seen) == []


def test_a_rocm_that_the_list_lacks_is_served_by_a_prefix_alone(made: Made, tmp_path: Path) -> None:
    """A place of files cannot add a name to PyTorch's list; the lines name what serves every ROCm."""
    with pytest.raises(BuildFailedError, match=r"no runtime for rocm7\.17: PyTorch would build it from"):
        fetch(made, tmp_path / "build", file_url(made.release.folder.parent), rocm="7.17")
    pins = pins_for(made, "https://example.org/")
    assert "rocm7.17" not in pins and "./dev compat --prefix" in pins


def test_prefix_that_is_installed_already(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTRITON_INSTALLED_PREFIX", str(made.unpack(tmp_path / "prefix")))
    # nothing listens there, and no list has this ROCm
    fetch(made, tmp_path / "build", "http://127.0.0.1:1/", rocm="7.17")
    status, output, seen = run(made, tmp_path / "build" / "client", tmp_path)
    assert (status, output, launched(seen)) == (0, "client: as expected\n", ["attn_fwd"])
