"""A synthetic checkout of AOTriton goes the whole way: generator, compiler, packer, its own library's calls."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import triton

from aotforge.base.progress import SILENT
from aotforge.compile.model import CompileEvent
from aotforge.errors import CompileError, ReleaseError, UnknownNameError, UnsupportedError, VerifyError
from aotforge.pipeline.display import BuildDisplay
from aotforge.upstream.images import UpstreamRequest, build_images
from aotforge.upstream.verify import VerifyRequest, verify_images

from vgpu.hip.build_hip import build_virtual_hip

pytestmark = pytest.mark.compiler
ROOT = Path(__file__).parents[3]
FIXTURE = ROOT / "tests" / "fixtures" / "aotriton"
REVISION = {"AOTRITON_CI_SUPPLIED_SHA1": "0" * 40, "AOTRITON_GIT_TREESHA1": "1" * 40}
QUIET = BuildDisplay(quiet=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def request_of(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Callable[[Path], UpstreamRequest]:
    source = tmp_path_factory.mktemp("source") / "aotriton"
    shutil.copytree(FIXTURE, source)

    def made(output: Path) -> UpstreamRequest:
        return UpstreamRequest(
            root=ROOT,
            source=source,
            archs=("gfx90a",),
            packages=Path(triton.__file__).parents[1],
            output=output,
            cache=cache,
            environment=REVISION,
            jobs=1,
        )

    return made


@pytest.fixture(scope="module")
def packs(request_of: Callable[[Path], UpstreamRequest], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "packs"
    report = build_images(request_of(output), observer=QUIET)
    assert len(report.images) == report.compiled == 6
    assert not report.failed and not report.left_out
    return output


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """The fixture's library, installed with headers of AOTriton's interface."""
    made = tmp_path_factory.mktemp("prefix")
    shutil.copytree(ROOT / "runtime" / "include", made / "include")
    config = (made / "include" / "aotriton" / "config.h.in").read_text()
    for name, value in (("MAJOR", "0"), ("MINOR", "13"), ("PATCH", "0")):
        config = config.replace(f"@AOTRITON_VERSION_{name}@", value)
    (made / "include" / "aotriton" / "config.h").write_text(config)
    (made / "lib").mkdir()
    hip = build_virtual_hip(cache).folder
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", str(FIXTURE / "library" / "library.cpp"),
         f"-I{made / 'include'}", f"-I{ROOT / 'runtime' / 'src' / 'standin'}", f"-L{hip}", "-lamdhip64", "-ldl",
         "-o", str(made / "lib" / "libaotriton_v2.so")],
        check=True,
    )  # fmt: skip
    return made


def verify(prefix: Path, packs: Path, cache: Path, maxima: tuple[int, ...]):  # noqa: ANN201
    request = VerifyRequest(root=ROOT, prefix=prefix, images=packs, cache=cache, maxima=maxima)
    return verify_images(request, observer=QUIET)


def test_every_image_is_executed(prefix: Path, packs: Path, cache: Path) -> None:
    report = verify(prefix, packs, cache, (16, 128))
    assert [image.outcome for image in report.images] == ["passed"] * 6
    assert report.calls == 16 and not report.refused
    report.require_passed()
