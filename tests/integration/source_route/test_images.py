"""Images by CMake: existing ones, verified and installed unchanged, and ones that the pipeline builds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, copy_checkout, share_interpreter
from tests.integration.source_route.ready_images import IMAGES, release
from tests.integration.source_route.routes import PYTORCH, Route, files, times

pytestmark = pytest.mark.compiler
Make = Callable[..., Route]


def test_existing_images_are_installed_and_replaced_together(route: Make, tmp_path: Path) -> None:
    made = route()
    given = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    ready = [option for option in PYTORCH if "NOIMAGE" not in option] + [f"-DAOTRITON_IMAGES={given}"]
    made.configure(*ready)
    install = ("cmake", "--install", ".", "--component", "images")
    early = made.run(*install, check=False)
    assert early.returncode != 0
    assert "holds no image packs. Next step: build before installing" in made.output(early)
    made.ninja("aotforge_images")
    made.run(*install)
    target = made.prefix / IMAGES / "amd-gfx908"
    assert files(target) == files(made.build / "images" / "amd-gfx908")
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o644}
    before = times(target)
    made.ninja("aotforge_images")
    assert "Up-to-date" in made.run(*install).stdout
    assert times(target) == before
    elsewhere = target.rename(tmp_path / "elsewhere")
    (elsewhere / "dispatch.aotd").write_bytes(b"of an older release")
    target.symlink_to(elsewhere)
    (made.prefix / "lib" / ".aotriton.images.new" / "new" / "amd-gfx908" / "left").mkdir(parents=True)
    made.run(*install)
    assert not target.is_symlink() and files(target) == files(made.build / "images" / "amd-gfx908")
    (target / "stale.aoti").write_bytes(b"of an older release")
    made.run(*install)
    assert files(target) == files(made.build / "images" / "amd-gfx908")
    assert sorted(path.name for path in (made.prefix / "lib").iterdir()) == ["aotriton.images"], (
        "nothing is left beside it"
    )
    for path in given.iterdir():
        path.unlink()
    shutil.copytree(release(tmp_path / "newer", {"amd-gfx90a": "gfx90a"}), given, dirs_exist_ok=True)
    made.ninja("aotforge_images")
    assert sorted(path.name for path in (made.build / "images").iterdir()) == ["amd-gfx90a"]


def test_the_pipeline_builds_what_is_requested_and_only_what_changed(route: Make, tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "a tree")
    for rules in source.glob("kernels/*/rules.py"):
        if rules.parent.name != "add":  # six small kernels are enough here
            shutil.rmtree(rules.parent)
    cache = tmp_path / "cache"
    share_interpreter(cache)
    made = route(source=source, AOTFORGE_HOME=str(HOME), AOTFORGE_CACHE=str(cache))
    built = [option for option in PYTORCH if "NOIMAGE" not in option and "TARGET" not in option]
    printed = made.output(
        made.configure(*built, "-DAOTRITON_TARGET_ARCH=gfx908:sramecc+;gfx1010", "-DAOTFORGE_PROFILE=smoke")
    )
    assert "there are no kernels for gfx1010; images are built for the others" in printed
    (made.build / "images.state").write_text("of ready images, which would not be taken again")
    made.ninja("aotforge_images")
    assert not (made.build / "images.state").exists()
    images = made.build / "images" / "amd-gfx908"
    assert {"__signature__", "dispatch.aotd", "add.add.aoti"} == set(files(images))
    before = times(images), files(images)
    assert "no work to do" in made.ninja("aotforge_images").stdout
    (source / "runtime" / "src" / "log.cpp").write_text("// another library\n")
    assert "no work to do" in made.ninja("aotforge_images").stdout
    kernel = source / "kernels" / "add" / "add.py"
    text = kernel.read_text()
    kernel.write_text(text + "# a comment\n")
    made.ninja("aotforge_images")
    assert (times(images), files(images)) == before, "the same kernels: nothing is written"
    (images / "add.add.aoti").chmod(0o666)
    (images / "dispatch.aotd").rename(source / "moved")
    (images / "dispatch.aotd").symlink_to(source / "moved")
    kernel.write_text(text + "# another one\n")
    made.ninja("aotforge_images")
    assert files(images) == before[1], "the same bytes"
    assert {path.lstat().st_mode & 0o170777 for path in images.iterdir()} == {0o100644}, "only this user's"
    assert "(left + right)" in text
    kernel.write_text(text.replace("(left + right)", "tl.where(mask, left + right, right)"))
    made.ninja("aotforge_images")
    after = files(images)
    assert after["add.add.aoti"] != before[1]["add.add.aoti"]
    kernel.write_text(_never_compiled(text))
    made.run("cmake", ".", "-DAOTRITON_GPU_BUILD_TIMEOUT=0.05")
    late = made.output(made.ninja("aotforge_images", check=False))
    assert "no answer in 3 s" in late
    assert "finished kernels are kept" in late
    assert files(images) == after, "what was there stays"


def _never_compiled(text: str) -> str:
    """The kernel with a loop that the compiler unrolls for hours, however fast the machine is."""
    line = next(line for line in text.splitlines() if "(left + right)" in line)
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(line, f"{indent}for _ in tl.static_range(0, 1 << 40):\n{indent}    pass\n{line}")


def test_without_python_the_next_step_is_printed(route: Make, tmp_path: Path) -> None:
    made = route(AOTFORGE_HOME=str(tmp_path / "home"))
    options = [option for option in PYTORCH if "NOIMAGE" not in option]
    made.configure(*options, "-DAOTFORGE_PYTHON=/nowhere/python3")
    done = made.ninja("aotforge_images", check=False)
    printed = made.output(done)
    assert done.returncode != 0
    assert "dev: AOTFORGE_PYTHON=/nowhere/python3 is not a Python 3.11 to 3.15" in printed
    assert (
        "-DAOTRITON_IMAGES=<tarball or release folder>, or with none, -DAOTRITON_NOIMAGE_MODE=ON" in printed
    )
