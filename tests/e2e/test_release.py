"""From `./dev release` to a PyTorch that computes with it, as the people on both sides do it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.pipeline.make_release import finished_before
from aotforge.pipeline.requests import ReleaseRequest
from tests.e2e.checkouts import ROOT
from tests.e2e.released import (
    CLIENTS,
    RELEASE,
    User,
    attention,
    build_client,
    hip_library,
    json_of,
    make_user,
)
from tests.support.rootfs import cache, target
from tests.support.s3 import have_ministack, running_server
from tests.support.web import served

pytestmark = pytest.mark.compiler
RIGHT = (0, "client: right numbers\n")
ORIGINAL = (
    "#include <aotriton/flash.h>\n"
    "hipError_t aotriton::v2::flash::check_gpu(aotriton::Stream) { return hipError_t(77); }\n"
)
PYTHON = (
    "int torch_main(int, char**);\nint main(int count, char** words) { return torch_main(count, words); }\n"
)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Who has released 0.11.2b-r1 to a bucket."""
    if not have_ministack():
        pytest.skip("ministack, an S3 server from the package index, is not in this environment")
    folder = tmp_path_factory.mktemp("user")
    for root in ("rocm-kernels", "rocm-runtime"):
        target("bubblewrap", folder, root)
    scratch = tmp_path_factory.mktemp("s3")
    with running_server(scratch) as server:
        made = make_user(folder, server)
        report = json_of(made.release(*made.publication(), "--json"))
        (folder / "report.json").write_text(json.dumps(report))
        yield made


def test_what_was_released(user: User) -> None:
    report = json_of((user.folder / "report.json").read_text())
    record = json_of((user.checkout / "releases" / f"{RELEASE}.json").read_text())
    assert report["commit"] == record["commit"] == user.first_commit()
    assert report["checks"]["failed"] == 0 and report["signed"]
    assert record["packs"]["amd-gfx908"]["jobs"] == 12
    listed = json_of(user.run("release.list", "--from", user.to, "--root", user.root, "--json"))
    (release,) = listed["releases"]
    assert (release["name"], release["verified"], release["development"]) == (RELEASE, True, [])
    published = {name.removeprefix(f"{RELEASE}/") for name in report["publication"]["sent"]}
    assert (
        published
        == {file["name"] for file in release["files"]}
        == {path.name for path in user.finished.iterdir()}
    )
    assert "signatures are valid" in user.run(
        "check", "--files", "--release", user.finished, "--key", user.folder / "key.pub"
    )
    other = user.folder / "other.pub"
    key = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="  # of RFC 8032's first test
    other.write_text(f"-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n")
    assert "not this key's signature" in user.run(
        "check", "--files", "--release", user.finished, "--key", other, code=7
    )
    page = Path(
        user.run("docs", "--releases", user.finished.parent, "--url", user.url).splitlines()[-1]
    ).read_text()
    assert RELEASE in page and all(
        file["sha256"] in page for file in report["files"] if "images" in file["name"]
    )
    assert (user.finished.parent / "simple" / "aotforge-attention" / "index.html").is_file()
    wheels = {name.partition("-")[0] for name in published if name.endswith(".whl")}
    assert wheels == {"aotforge", "aotforge_attention", "aotforge_flash", "aotforge_images_gfx908"}


def test_a_run_that_is_repeated_skips_what_is_finished(user: User) -> None:
    request = ReleaseRequest(
        root=user.checkout, cache=cache(), archs=("gfx908",), profile="smoke", version="0.11.2b",
        windows=False, wheels=True,
    )  # fmt: skip
    made = finished_before(request)
    assert made is not None and made.folder == user.finished
    others = ({"profile": "core"}, {"windows": True}, {"version": "0.13b"}, {"archs": ("gfx90a",)})
    assert not any(finished_before(replace(request, **other)) for other in others)


def test_a_pytorch_that_is_built_with_it(user: User, tmp_path: Path) -> None:
    """2.11 downloads from the bucket, 2.9 from a web server; both compute on a virtual MI100."""
    pins = user.run("compat", "--pins", user.finished, "--pytorch", "2.11", "--url", user.url)
    assert '"amd-gfx908"' in pins and f'set(__AOTRITON_CI_COMMIT "{user.first_commit()}")' in pins
    assert attention(user, build_client(tmp_path / "from bucket", pins)) == RIGHT
    with served(user.finished.parent) as (url, _):
        pins = user.run("compat", "--pins", "newest", "--pytorch", "2.9", "--url", url)
        assert attention(user, build_client(tmp_path / "from server", pins)) == RIGHT


def test_a_prefix_from_the_bucket_and_from_a_folder(user: User, tmp_path: Path) -> None:
    install = ("install", "--arch", "gfx908", "--root", user.root, "--rocm", "7.0", "--json")
    first = json_of(user.run(*install, "--from", user.to, "--prefix", tmp_path / "one"))
    assert (first["release"], first["fresh"]) == (RELEASE, True)
    user.run("release.publish", "--from", user.to, "--to", tmp_path / "mirror", "--root", user.root)
    json_of(user.run(*install, "--from", tmp_path / "mirror", "--prefix", tmp_path / "two"))
    files = [
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    ]
    assert files[0] == files[1]
    client = build_client(tmp_path / "client", "", env={"AOTRITON_INSTALLED_PREFIX": str(tmp_path / "one")})
    assert attention(user, client) == RIGHT


def make_torch(user: User, folder: Path) -> Path:
    """PyTorch 2.9's wheel in small: libtorch_hip.so does attention, which the wheel's library cannot."""
    lib, name = folder / "torch" / "lib", "libaotriton_v2.so.0.11.0"
    (lib / "aotriton.images" / "amd-gfx90a").mkdir(parents=True)
    (lib / "aotriton.images" / "amd-gfx90a" / "__signature__").write_bytes(b"of another format")
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+rocm7.0'\n")
    runtime = user.finished / f"aotriton-{RELEASE}-manylinux_2_28_x86_64-rocm7.0-shared.tar.gz"
    subprocess.run(["tar", "-xf", runtime, "-C", folder], check=True)
    for source, text in (("original.cpp", ORIGINAL), ("python.cpp", PYTHON)):
        (folder / source).write_text(text)
    includes = [f"-I{folder / 'aotriton' / 'include'}", f"-I{ROOT / 'runtime' / 'src' / 'standin'}"]
    shared = ["g++", "-std=c++17", *includes, "-shared", "-fPIC"]
    torch, origin, hip = lib / "libtorch_hip.so", "-Wl,-rpath,$ORIGIN", hip_library()
    commands: tuple[list[str | Path], ...] = (
        [*shared, "original.cpp", "-o", lib / name, f"-Wl,-soname,{name}"],
        [*shared, "-Dmain=torch_main", CLIENTS / "client.cpp", "-o", torch, lib / name, hip, origin],
        ["g++", "python.cpp", "-o", "python", torch, f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"],
    )  # fmt: skip
    for made in commands:
        subprocess.run(made, cwd=folder, check=True)
    return lib


def test_an_installed_pytorch(user: User, tmp_path: Path) -> None:
    lib = make_torch(user, tmp_path)
    program = tmp_path / "python"
    before = attention(user, program)
    assert before[0] != 0
    drop_in = ("dropin", "--pytorch-lib", lib, "--arch", "gfx908")
    planned = user.run(*drop_in, "--dry-run").splitlines()
    assert not (lib / ".aotforge-dropin").exists()
    done = user.run(*drop_in).splitlines()
    use, lost, caution, *changes = done
    assert use.startswith("PyTorch will use these images: no, because the images for gfx908 do not serve all")
    assert "gfx90a had images" in lost and caution == "warning: no image has run on a real GPU"
    assert planned == [use, lost, caution, *(f"would change: {line}" for line in changes)]
    assert attention(user, program) == RIGHT
    assert user.run(*drop_in).splitlines() == [use, "nothing to do"]
    user.run("dropin", "--pytorch-lib", lib, "--undo")
    # the same from the published place
    install = ("install", "--pytorch-lib", lib, "--arch", "gfx908", "--root", user.root, "--from", user.to)
    assert f"{RELEASE} for gfx908 is in" in user.run(*install)
    assert attention(user, program) == RIGHT
    user.run("dropin", "--pytorch-lib", lib, "--undo")
    assert attention(user, program) == before


def test_again_and_what_may_not_be_released(user: User) -> None:
    """The record is committed in between; the release stays the published one."""
    kept = {path.name: path.read_bytes() for path in user.finished.iterdir()}
    made_from = json_of((user.checkout / "releases" / f"{RELEASE}.json").read_text())["commit"]
    user.commit("the record of 0.11.2b-r1")
    again = json_of(user.release(*user.publication(), "--json"))
    assert (again["fresh"], again["commit"], again["publication"]["sent"]) == (False, made_from, [])
    licence = user.checkout / "LICENSE"
    licence.write_text(licence.read_text() + "\nOne line more.\n")
    assert "LICENSE" in user.release(code=4)
    user.commit("another licence")
    assert "is recorded with other bytes" in user.release(code=4)
    assert "platform" in user.release(code=4, executor="local")
    assert "0.12b cannot be made from these sources" in user.run(
        "release", "--version", "0.12b", "--unsigned", code=2
    )
    assert "no signing key" in user.run("release", "--version", "0.11.2b", code=7)
    assert {path.name: path.read_bytes() for path in user.finished.iterdir()} == kept
