"""Images by CMake: existing ones, verified and installed unchanged, and ones that the pipeline builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, copy_checkout, share_interpreter
from tests.integration.source_route.ready_images import IMAGES, release
from tests.integration.source_route.routes import PYTORCH, Route, files, times

pytestmark = pytest.mark.compiler
Make = Callable[..., Route]


def test_names_in_a_folder_of_images_come_into_no_script(route: Make, tmp_path: Path) -> None:
    """CMake writes the names that a glob has found into a script, and executes it before each build."""
    given = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    (given / 'b")\nfile(WRITE "executed" "x")\nset(X "y.aoti').touch()
    made = route()
    ready = [option for option in PYTORCH if "NOIMAGE" not in option] + [f"-DAOTRITON_IMAGES={given}"]
    made.configure(*ready)
    made.ninja("aotforge_images")
    made.ninja("aotforge_images")
    assert files(made.build / "images")
    assert not list(made.build.rglob("executed"))
    scripts = [path.read_text() for path in made.build.rglob("*.cmake")]
    assert not any("executed" in text for text in scripts)


def test_existing_images_are_installed_and_replaced_together(route: Make, tmp_path: Path) -> None:
    made = route()
    given = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    ready = [option for option in PYTORCH if "NOIMAGE" not in option] + [f"-DAOTRITON_IMAGES={given}"]
    made.configure(*ready)
    install = ("cmake", "--install", ".", "--component", "images")
    early = made.run(*install, check=False)
    assert early.returncode != 0
    assert "holds no image packs. Next step: build before installing" in made.output(early)
    _build_with_an_open_umask(made)
    program = tmp_path / "bin" / "id"  # executed while files are installed
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\numask >> "{tmp_path}/umasks"\nexec {shutil.which("id")} "$@"\n')
    program.chmod(0o755)
    search = f"{program.parent}:{os.environ['PATH']}"
    made.run("sh", "-c", f"umask 000 && exec {' '.join(install)}", PATH=search)
    assert set((tmp_path / "umasks").read_text().split()) == {"0022"}, (
        "no other user could open a file to write it later"
    )
    assert {made.prefix.joinpath(*below).stat().st_mode & 0o777 for below in [(), ("lib",), (IMAGES,)]} == {
        0o755
    }
    _check_private_umask(made, tmp_path)
    target = made.prefix / IMAGES / "amd-gfx908"
    assert files(target) == files(made.build / "images" / "amd-gfx908")
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o644}
    before = times(target)
    made.ninja("aotforge_images")
    assert "Up-to-date" in made.run(*install).stdout
    assert times(target) == before
    (target / "dispatch.aotd").chmod(0o666)
    assert "dispatch.aotd has the mode -rw-rw-rw-" in made.output(made.run(*install, check=False))
    (target / "dispatch.aotd").chmod(0o600)
    made.run(*install)
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o644}
    elsewhere = target.rename(tmp_path / "elsewhere")
    for odd in ("link", "pipe"):
        if odd == "link":
            target.symlink_to(elsewhere)
        else:
            (target / "dispatch.aotd").unlink()
            os.mkfifo(target / "dispatch.aotd", 0o644)
        made.run(*install)
        assert not target.is_symlink() and files(target) == files(made.build / "images" / "amd-gfx908")
    target.parent.chmod(0o777)
    assert "aotriton.images has the mode drwxrwxrwx" in made.output(made.run(*install, check=False))
    target.parent.chmod(0o755)
    (target / "stale.aoti").write_bytes(b"of an older release")
    made.run(*install)
    assert files(target) == files(made.build / "images" / "amd-gfx908")
    assert sorted(path.name for path in (made.prefix / "lib").iterdir()) == ["aotriton.images"], (
        "nothing is left beside it"
    )
    _check_installations_at_once(made, tmp_path)
    for path in given.iterdir():
        path.unlink()
    shutil.copytree(release(tmp_path / "newer", {"amd-gfx90a": "gfx90a"}), given, dirs_exist_ok=True)
    made.ninja("aotforge_images")
    assert sorted(path.name for path in (made.build / "images").iterdir()) == ["amd-gfx90a"]


def _build_with_an_open_umask(made: Route) -> None:
    made.run("sh", "-c", "umask 000 && exec ninja aotforge_images")
    left = [path for path in made.build.glob("images*") if path.name != "images.settings"]
    assert len(left) > 2 and not any(path.stat().st_mode & 0o022 for path in left)


def _check_private_umask(made: Route, tmp_path: Path) -> None:
    """CMake makes the folders that lead to others with it."""
    command = "umask 077 && exec cmake --install . --component images"
    made.run("sh", "-c", command, DESTDIR=str(tmp_path / "private"))
    private = tmp_path / "private" / made.prefix.relative_to("/")
    assert {(private / below).stat().st_mode & 0o777 for below in ("lib", IMAGES)} == {0o755}
    _check_parent_of_a_link(made, tmp_path)
    _check_pattern(made, tmp_path)


def _check_pattern(made: Route, tmp_path: Path) -> None:
    """The path of a prefix may match another folder: for CMake's own scripts, which remove files, and for ours."""
    (tmp_path / "p1" / "lib" / "aotriton.images" / "amd-gfx908").mkdir(parents=True)
    (tmp_path / "p[1]").mkdir()
    (tmp_path / "plain").symlink_to("p[1]")
    command = ("cmake", "--install", ".", "--component", "images", "--prefix")
    for name in ("p[1]", "p*", "p?", "p;1"):
        refused = made.run(*command, str(tmp_path / name), check=False)
        assert refused.returncode and "has one of [ ] * ? ; in its path" in made.output(refused)
    made.run(*command, str(tmp_path / "plain"))
    again = made.run(*command, str(tmp_path / "plain"))
    assert f"Up-to-date: {tmp_path}/p[1]/{IMAGES}/amd-gfx908" in made.output(again)


def _check_parent_of_a_link(made: Route, tmp_path: Path) -> None:
    """`..` behind a link is the folder above what it leads to; another user could make the other one."""
    (tmp_path / "home" / "build").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "build").symlink_to(tmp_path / "home" / "build")
    wrong = tmp_path / "open" / "stage" / made.prefix.relative_to("/") / "lib"
    wrong.mkdir(parents=True)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (wrong / ".aotriton.images.lock").symlink_to(mine)
    stage = tmp_path / "open" / "build" / ".." / "stage"
    made.run("cmake", "--install", ".", "--component", "images", DESTDIR=str(stage))
    assert mine.read_text() == "mine" and [path.name for path in wrong.iterdir()] == [".aotriton.images.lock"]
    right = tmp_path / "home" / "stage" / made.prefix.relative_to("/") / IMAGES / "amd-gfx908"
    assert files(right) == files(made.build / "images" / "amd-gfx908")


def _check_installations_at_once(made: Route, tmp_path: Path) -> None:
    """One that was ended has left files; the next one is stopped while it compares, and another one waits for it."""
    lib, target = made.prefix / "lib", made.prefix / IMAGES / "amd-gfx908"
    (lib / ".aotriton.images.new" / "new").mkdir(parents=True)
    (lib / ".aotriton.images.new" / "new" / "left").touch()
    (lib / ".aotriton.images.lock").touch()
    (target / "stale.aoti").touch()
    started, resume = tmp_path / "started", tmp_path / "resume"
    program = tmp_path / "slow" / "find"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *"-perm 644"*) touch "{started}"; until [ -e "{resume}" ]; do sleep 0.05; done; esac\n'
        f'exec {shutil.which("find")} "$@"\n'
    )
    program.chmod(0o755)
    command = ["cmake", "--install", ".", "--component", "images"]
    slow = dict(made.environment) | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=made.build, env=slow) as first:
        while not started.exists():
            time.sleep(0.05)
        with subprocess.Popen(command, cwd=made.build, env=dict(made.environment)) as second:
            try:
                with pytest.raises(subprocess.TimeoutExpired):
                    second.wait(2)
            finally:
                resume.touch()
            assert first.wait() == second.wait() == 0
    assert files(target) == files(made.build / "images" / "amd-gfx908")
    assert [path.name for path in lib.iterdir()] == ["aotriton.images"]


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
