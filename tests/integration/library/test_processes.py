"""Threads, fork, dlclose, allocation failure, two copies: programs that exit 0 on success
(runtime/tests/stress.cpp)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.runtime import Objects
from tests.support.small_pack import write_add


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("add")
    write_add(folder / "amd-gfx908")
    return folder


def stress(objects: Objects, images: Path, words: Sequence[object], **environment: str) -> None:
    env = (
        os.environ
        | {"LD_LIBRARY_PATH": str(objects.hip(7)), "AOTRITON_IMAGES_DIR": str(images)}
        | environment
    )
    command = [str(objects.program("stress")), *map(str, words)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert "aotriton" not in ran.stdout + ran.stderr


def test_threads_load_an_image_once(objects: Objects, images: Path) -> None:
    stress(
        objects, images, ["threads", 8], HIP_DOUBLE_DELAY="hipModuleLoadData:20000,hipModuleGetFunction:5000"
    )


def test_every_allocation_may_fail(objects: Objects, images: Path) -> None:
    stress(objects, images, ["memory"])


def test_no_memory_for_a_state_sets_the_last_error(objects: Objects, images: Path) -> None:
    stress(objects, images, ["stateless", "libamdhip64.so.7"])


def test_a_forked_child_may_call(objects: Objects, images: Path) -> None:
    stress(objects, images, ["fork"])


def test_unloading_leaves_nothing(objects: Objects, images: Path, tmp_path: Path) -> None:
    copy = shutil.copy(objects.library, tmp_path / "copy.so")
    stress(objects, images, ["reload", copy, 100], AOTRITON_LOG="off")  # it calls what is not there


def test_two_copies_in_one_process(objects: Objects, images: Path, tmp_path: Path) -> None:
    copies = [shutil.copy(objects.library, tmp_path / f"{name}.so") for name in "ab"]
    stress(objects, images, ["twice", *copies])


def test_two_threads_make_one_state(objects: Objects, images: Path) -> None:
    stress(objects, images, ["race"])


LONG = "hipModuleLoadData:3600000000"
"""A call that stays inside for an hour; the processes end before it does."""


def test_a_child_of_a_process_with_a_thread_inside(objects: Objects, images: Path, tmp_path: Path) -> None:
    """Its locks stay locked in the child, which therefore has a state of its own and frees that when it
    unloads the library."""
    copy = shutil.copy(objects.library, tmp_path / "copy.so")
    stress(objects, images, ["forkinside", copy], HIP_DOUBLE_DELAY=LONG, AOTRITON_LOG="off")


def test_unloading_frees_nothing_that_a_thread_uses(objects: Objects, images: Path, tmp_path: Path) -> None:
    copy = shutil.copy(objects.library, tmp_path / "copy.so")
    stress(objects, images, ["unloadinside", copy], HIP_DOUBLE_DELAY=LONG)
