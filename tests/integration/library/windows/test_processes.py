"""The library on Windows under Wine: look-up of HIP and images, folders, processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.attention import Problem, spy_pack
from tests.support.runtime import build_objects
from tests.support.small_pack import write
from tests.support.windows import DLL, WindowsObjects, events, linux_run, run
from tests.support.wine import Wine, windows_path

NO_HIP, NOT_FOUND, NO_BINARY = 303, 301, 209
LONG = "/".join(name * 30 for name in ("long-", "path_", "тест"))


@pytest.fixture
def place(windows: WindowsObjects, pack: Path, tmp_path: Path) -> Path:
    """A folder with library, images and the program."""
    folder = windows.place(tmp_path / "lib", "processes")
    shutil.copytree(pack, folder / "aotriton.images")
    return folder


FOLDERS = {
    "ASCII": "plain",
    "spaces": "with some spaces",
    "code page 1252": "café",
    "Cyrillic": "тест",
    "Chinese and Japanese": "測試 画像",
    "beyond the first plane": "\U0001f9ea",
    "over 260 characters": LONG,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_library_and_images_in_any_folder(
    wine: Wine, windows: WindowsObjects, pack: Path, tmp_path: Path, name: str
) -> None:
    """Images beside the library; then the same folder named by the variable, from a library that has none."""
    folder = windows.place(tmp_path / FOLDERS[name])
    shutil.copytree(pack, folder / "aotriton.images")
    for path in (folder, folder / "aotriton.images", folder / "aotriton.images" / "amd-gfx908"):
        path.chmod(0o555)
    library = "\\\\?\\" + windows_path(folder / DLL)
    program = windows.program("processes")
    beside = run(wine, program, "open", library, hip=windows.hip(7), AOTRITON_LOG="info")
    bare = windows.place(tmp_path / "bare")
    images = windows_path(folder / "aotriton.images").replace("\\", "/")
    named = run(
        wine, program, "open", windows_path(bare / DLL), hip=windows.hip(7), AOTRITON_IMAGES_DIR=images
    )
    for path in (folder, folder / "aotriton.images", folder / "aotriton.images" / "amd-gfx908"):
        path.chmod(0o755)
    for done in (beside, named):
        assert done.stdout.startswith("rc 0\nmajor 7\n"), (done.stdout, done.stderr)
        assert [event["event"] for event in events(done.stdout)] == ["load", "launch"]
    # the log names the folder in UTF-8
    assert f"{FOLDERS[name].replace('/', chr(92))}\\aotriton.images\\amd-gfx908" in beside.stderr


def test_images_on_a_share(wine: Wine, windows: WindowsObjects, pack: Path, place: Path) -> None:
    """A server's path. (Wine reports a path that does not exist for a library loaded from there, so the
    library is elsewhere.)"""
    server = Path(tempfile.mkdtemp(prefix="share", dir=_made(wine.prefix / "dosdevices" / "unc")))
    try:
        (server / "images").symlink_to(pack)
        words = ("open", windows_path(place / DLL))
        shutil.rmtree(place / "aotriton.images")
        for images in (
            f"\\\\{server.name}\\images",
            f"//{server.name}/images",
            f"\\\\?\\UNC\\{server.name}\\images",
        ):
            done = run(wine, place / "processes.exe", *words, hip=windows.hip(7), AOTRITON_IMAGES_DIR=images)
            assert done.stdout.startswith("rc 0\n"), (images, done.stdout, done.stderr)
    finally:
        shutil.rmtree(server)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def test_a_relative_images_folder(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    (place / "aotriton.images").rename(place / "elsewhere")
    words = ("open", windows_path(place / DLL))
    done = run(
        wine,
        place / "processes.exe",
        *words,
        hip=windows.hip(7),
        folder=place,
        AOTRITON_IMAGES_DIR="elsewhere",
    )
    assert done.stdout.startswith("rc 0\n"), (done.stdout, done.stderr)


def test_no_images(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    shutil.rmtree(place / "aotriton.images")
    words = ("open", windows_path(place / DLL))
    done = run(wine, place / "processes.exe", *words, hip=windows.hip(7), AOTRITON_LOG="error")
    assert done.stdout.startswith(f"rc {NOT_FOUND}\n")
    assert (
        f"aotriton: error: {windows_path(place)}\\aotriton.images: No such file or directory\n" in done.stderr
    )


def test_no_hip(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    words = ("open", windows_path(place / DLL))
    done = run(wine, place / "processes.exe", *words, hip=None, AOTRITON_LOG="error")
    assert done.stdout == f"rc {NO_HIP}\n"
    assert "amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll: not found" in done.stderr


@pytest.mark.parametrize("major", [5, 6])
def test_older_hip(wine: Wine, windows: WindowsObjects, place: Path, major: int) -> None:
    """HIP 5 has only amdhip64.dll and the old layout of device properties; the arch is found in both."""
    words = ("open", windows_path(place / DLL))
    done = run(
        wine, place / "processes.exe", *words, hip=windows.hip(major), HIP_DOUBLE_DEVICES="gfx908:xnack-@7"
    )
    assert done.stdout.startswith(f"rc 0\nmajor {major}\n"), (done.stdout, done.stderr)
    done = run(wine, place / "processes.exe", *words, hip=windows.hip(major), HIP_DOUBLE_DEVICES="gfx90a")
    assert done.stdout.startswith(f"rc {NO_BINARY}\n")


def test_the_newest_installed_hip_serves(
    wine: Wine, windows: WindowsObjects, place: Path, tmp_path: Path
) -> None:
    for major in (5, 6, 7):
        shutil.copytree(windows.hip(major), tmp_path / "all", dirs_exist_ok=True)
    words = ("open", windows_path(place / DLL))
    done = run(wine, place / "processes.exe", *words, hip=tmp_path / "all")
    assert done.stdout.startswith("rc 0\nmajor 7\n"), (done.stdout, done.stderr)


def test_the_loaded_hip_serves(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    """A process that has HIP 6 keeps it, although HIP 7 could be found."""
    shutil.copy(windows.program("driver"), place)
    lines = [
        f"hip {windows_path(windows.hip(6) / 'amdhip64_6.dll')}",
        "arch",
        "calls hipGetDevicePropertiesR0600",
    ]
    done = run(wine, place / "driver.exe", hip=windows.hip(7), lines=lines, HIP_DOUBLE_DEVICES="gfx942")
    assert done.stdout == "ok\n100209420000\n1\n", (done.stdout, done.stderr)


def test_threads_load_an_image_once(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    words = ("threads", windows_path(place / DLL), "8")
    done = run(
        wine, place / "processes.exe", *words, hip=windows.hip(7), HIP_DOUBLE_DELAY="hipModuleLoadData:20000"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_two_copies_in_one_process(wine: Wine, windows: WindowsObjects, place: Path, tmp_path: Path) -> None:
    second = shutil.copytree(place, tmp_path / "второй")
    words = ("twice", windows_path(place / DLL), windows_path(second / DLL))
    done = run(wine, place / "processes.exe", *words, hip=windows.hip(7), AOTRITON_LOG="info")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for folder in (place, second):
        assert f"served by {windows_path(folder)}\\aotriton.images" in done.stderr


def test_unloading_leaves_nothing(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    words = ("reload", windows_path(place / DLL), "150")
    done = run(wine, place / "processes.exe", *words, hip=windows.hip(7))
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_a_process_ends_while_threads_are_inside(wine: Wine, windows: WindowsObjects, place: Path) -> None:
    words = ("busy", windows_path(place / DLL))
    done = run(wine, place / "processes.exe", *words, hip=windows.hip(7))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_caller_s_exception_passes_through(wine: Wine, windows: WindowsObjects, tmp_path: Path) -> None:
    """In a program that mingw built, an exception of a callback reaches the caller as on Linux, and the
    library stays usable."""
    folder = windows.place(tmp_path / "lib", "driver")
    write(spy_pack(), folder / "aotriton.images" / "amd-gfx908")
    lines = [Problem(extra={"throw": 1}).line("bwd"), "events", Problem().line("bwd"), "events"]
    done = run(wine, folder / "driver.exe", hip=windows.hip(7), lines=lines)
    linux, images = build_objects(), {"AOTRITON_IMAGES_DIR": str(folder / "aotriton.images")}
    assert done.stdout == linux_run(linux.program("driver"), linux.hip(7), lines, images), done.stderr
    assert done.stdout.startswith("rc -1\n") and done.stdout.count("rc 0\n") == 1
