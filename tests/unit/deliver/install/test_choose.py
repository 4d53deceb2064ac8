"""Choice of a release and of its files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotforge.deliver.install.choose import (
    InstallRequest,
    Machine,
    choose_files,
    choose_release,
    this_machine,
)
from aotforge.errors import InstallError, UnknownNameError
from aotforge.formats.tar_reader import TarFacts
from aotforge.publish.index import Index, IndexedFile, IndexedRelease, Yank

MACHINE = Machine(processor="x86_64", glibc=(2, 36), rocm="7.0")
REQUEST = InstallRequest(packs={"gfx908": "amd-gfx908"})


def file(name: str, tar: str = "1") -> IndexedFile:
    return IndexedFile(name=name, size=1, sha256=name, tar=TarFacts(sha256=tar, size=1, members=1))


def release(
    name: str, *, rocm: str = "6.4 7.0 7.2", tag: str = "manylinux_2_28_x86_64", same: bool = True
) -> IndexedRelease:
    runtimes = [
        file(f"aotriton-{name}-{tag}-rocm{r}-shared.tar.gz", "1" if same else r) for r in rocm.split()
    ]
    images = [file(f"aotriton-{name}-images-{pack}.tar.gz") for pack in ("amd-gfx908", "amd-gfx110x")]
    return IndexedRelease(name=name, files=(*runtimes, *images), published="", verified=True)


def index(*releases: IndexedRelease) -> Index:
    return Index(version=1, releases=releases)


NAMES = ["0.9.2b-r1", "0.11.2b-r2", "0.11.2b-r10", "0.11b-r1", "0.10b-r3", "0.11.1b"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, "0.11.2b-r10"),
        ("0.11.2b", "0.11.2b-r10"),
        ("0.11.2b-r2", "0.11.2b-r2"),
        ("0.10b", "0.10b-r3"),
        ("0.11.1b", "0.11.1b"),
    ],
)
def test_release(wanted: str | None, found: str) -> None:
    chosen, notes = choose_release(index(*map(release, NAMES)), replace(REQUEST, version=wanted))
    assert (chosen.name, notes) == (found, ())


def test_levels_are_preferred_in_their_order() -> None:
    """An API level that the PyTorch pins, even when a later one is published."""
    published = index(*map(release, ("0.11.2b-r1", "0.12.1b-r1", "0.12.1b-r2", "0.13b-r1", "0.14.2b-r1")))
    both = replace(REQUEST, levels=("0.12.1b", "0.13b"))
    assert choose_release(published, both)[0].name == "0.12.1b-r2"
    assert choose_release(published, replace(REQUEST, levels=("0.13b",)))[0].name == "0.13b-r1"
    assert choose_release(published, replace(both, version="0.14.2b"))[0].name == "0.14.2b-r1"
    with pytest.raises(UnknownNameError, match=r"no release of API level 0\.9b"):
        choose_release(published, replace(REQUEST, levels=("0.9b",)))


def test_no_release() -> None:
    with pytest.raises(UnknownNameError, match=r"no release 0.11.3b\n.*0.11.1b"):
        choose_release(index(*map(release, NAMES)), replace(REQUEST, version="0.11.3b"))
    with pytest.raises(UnknownNameError, match="no release yet"):
        choose_release(index(), REQUEST)


def test_development_builds_and_yanked_ones_come_last() -> None:
    good, newer = release("0.11.2b-r1"), release("0.11.2b-r2")
    development, yanked = (
        replace(newer, development=("why",)),
        replace(newer, yanked=Yank(reason="bad", time="")),
    )
    assert choose_release(index(good, development), REQUEST)[0] is good
    assert choose_release(index(good, replace(newer, verified=False)), REQUEST)[0] is good
    assert choose_release(index(good, yanked), REQUEST)[0] is good
    chosen, notes = choose_release(index(development), REQUEST)
    assert chosen is development and notes == ("development build: why",)
    with pytest.raises(InstallError, match="was yanked: bad"):
        choose_release(index(yanked), REQUEST)


def names(of: IndexedRelease, request: InstallRequest = REQUEST, machine: Machine = MACHINE) -> list[str]:
    return [file.name.partition(f"{of.name}-")[2] for file in choose_files(of, request, machine)[0]]


def test_files() -> None:
    of = release("0.11.2b-r1")
    runtime = "manylinux_2_28_x86_64-rocm{}-shared.tar.gz"
    assert names(of) == [runtime.format("7.0"), "images-amd-gfx908.tar.gz"]
    assert names(of, replace(REQUEST, rocm="6.4"))[0] == runtime.format("6.4")
    archs = replace(REQUEST, packs={"gfx1100": "amd-gfx110x", "gfx1101": "amd-gfx110x"})
    assert names(of, archs)[1:] == ["images-amd-gfx110x.tar.gz"]
    for rocm in ("", "7.1"):  # none here, or one that is not listed: all the same bytes
        assert names(of, machine=replace(MACHINE, rocm=rocm))[0] == runtime.format("7.2")
        assert "all of them are the same" in choose_files(of, REQUEST, replace(MACHINE, rocm=rocm))[1][0]


@pytest.mark.parametrize(
    ("of", "request_", "machine", "message"),
    [
        (release("1.0b"), replace(REQUEST, packs={"gfx90a": "amd-gfx90a"}), MACHINE,
         "no images for gfx90a .*\n.*amd-gfx110x, amd-gfx908"),
        (release("1.0b"), replace(REQUEST, rocm="5.0"), MACHINE, "no library for ROCm 5.0\n.*6.4, 7.0, 7.2"),
        (release("1.0b", same=False), REQUEST, replace(MACHINE, rocm="7.1"), "no library for ROCm 7.1"),
        (release("1.0b", same=False), REQUEST, replace(MACHINE, rocm=""),
         "no ROCm was found on this machine\n.*--rocm"),
        (release("1.0b"), REQUEST, replace(MACHINE, processor="aarch64"), "no library for aarch64\n.*x86_64"),
        (release("1.0b"), REQUEST, replace(MACHINE, glibc=(2, 17)),
         "needs glibc 2.28, this machine has 2.17"),
        (release("1.0b"), REQUEST, replace(MACHINE, glibc=None), "needs glibc 2.28, this machine has none"),
    ],
)  # fmt: skip
def test_nothing_fits(of: IndexedRelease, request_: InstallRequest, machine: Machine, message: str) -> None:
    with pytest.raises(InstallError, match=message):
        choose_files(of, request_, machine)


def test_this_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    rocm = tmp_path_factory.mktemp("rocm")
    (rocm / ".info").mkdir()
    (rocm / ".info/version").write_text("7.0.2-56\n")
    found = this_machine({"ROCM_PATH": str(rocm)})
    assert found.rocm == "7.0" and found.processor and found.glibc and found.glibc[0] == 2
