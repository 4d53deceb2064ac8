"""Shared machines, containers, CI runners: tasks work, and warn once at most, of the cache alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from aotforge.devtools.doctor import CHECKS
from aotforge.formats.library_alias import library_alias
from aotforge.publish.session import open_for_publishing
from tests.e2e.machines import (
    WORLD,
    Account,
    Folder,
    Machine,
    make_checkout,
    new_machine,
    reason,
)
from tests.integration.source_route.ready_images import release as ready_release
from tests.integration.source_route.routes import PYTORCH, zstd_archive
from tests.support.publishing import make_keys, make_release, publish
from tests.support.releases import build_small
from tests.support.torch_lib import OLD

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(bool(reason()), reason=reason() or "machines can be simulated"),
]

ROOT = Account(uid=0, gid=0)
ALICE = Account(uid=1000, gid=1000, groups=(2000,))
BOB = Account(uid=1002, gid=1002, groups=(2000,), umask=0o002)
DEVS, STAFF = 2000, 50
NAMES = ("alice:x:1000:1000::/mnt/home/alice:/bin/sh", "bob:x:1002:1002::/mnt/home/bob:/bin/sh")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("ordinary") / "checkout")


@pytest.fixture
def machine(tmp_path: Path, checkout: Path) -> Machine:
    return new_machine(tmp_path / "world", checkout)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A machine, who works there, and whether the cache is worth a warning."""

    name: str
    account: Account
    make: Callable[[Machine], None]
    warned: bool = False


def cache(machine: Machine, owner: tuple[int, int], mode: int = 0o755, path: str = "") -> Path:
    """The checkout's cache folder, or one elsewhere."""
    folder = machine.world / path if path else machine.checkout / ".aotforge" / "cache"
    folder.mkdir(parents=True)
    machine.own(folder, owner)
    folder.chmod(mode)
    if path:
        machine.settings["AOTFORGE_CACHE"] = str(WORLD / path)
    return folder


def mounted_checkout(machine: Machine) -> None:
    cache(machine, ALICE.owner)
    machine.own(machine.checkout, ALICE.owner)


def team_folder(machine: Machine) -> None:
    machine.place = "shared/w"
    machine.make(Folder(path="shared", owner=(ALICE.uid, DEVS), mode=0o2775))
    machine.accounts(NAMES, ["devs:x:2000:alice,bob"])
    machine.own(machine.checkout, (ALICE.uid, DEVS), "g+rwXs")


def user_without_a_name(machine: Machine) -> None:
    cache(machine, (4242, 4242), 0o775)
    machine.own(machine.checkout, (4242, 4242), "g+rwX")


def cache_of_a_team(machine: Machine) -> None:
    machine.accounts(NAMES, ["devs:x:2000:alice,bob"])
    cache(machine, (ALICE.uid, DEVS), 0o2775, "srv/c")


CASES = (
    Case(
        name="checkout of uid 1000 mounted into a container of root",
        account=ROOT,
        make=mounted_checkout,
        warned=True,
    ),
    Case(name="setgid folder of a team", account=ALICE, make=team_folder),
    Case(
        name="user without a passwd entry, umask 002",
        account=Account(uid=4242, gid=4242, umask=0o002),
        make=user_without_a_name,
    ),
    Case(name="shared cache, by a member", account=BOB, make=cache_of_a_team, warned=True),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_task_works_and_warns_of_a_cache_of_others_alone(machine: Machine, case: Case) -> None:
    case.make(machine)
    shown = machine.dev(case.account, "cache")
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stderr.splitlines()) == case.warned, shown.stderr
    assert not case.warned or ("warning" in shown.stderr and "cache" in shown.stderr)
    doctor = machine.dev(case.account, "doctor")
    assert doctor.returncode in (0, 3), doctor.stderr
    names = [line[7:25].rstrip() for line in doctor.stdout.splitlines() if line[:1].strip()]
    assert names == list(CHECKS), doctor.stdout + doctor.stderr
    (row,) = [line for line in doctor.stdout.splitlines() if line[7:25].rstrip() == "cache"]
    assert ("warning" in row) is case.warned, row
    strict = machine.dev(case.account, "cache", env={"AOTFORGE_STRICT": "1"})
    if case.warned:
        assert strict.returncode == 3 and strict.stderr.startswith("error: "), strict.stderr
    else:
        assert (strict.returncode, strict.stderr) == (0, "")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release folder of others: it is not in the checkout's releases/dist."""
    return build_small(tmp_path_factory.mktemp("release"))


TORCH = "lib/python3.11/site-packages/torch"


def torch_lib(machine: Machine, path: str) -> Path:
    """PyTorch 2.9 in an environment, as far as a drop-in reads it; its path there."""
    lib = machine.world / path / TORCH / "lib"
    (lib / "aotriton.images").mkdir(parents=True)
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+rocm6.4'\n")
    (lib / OLD).write_bytes(library_alias(OLD, "libm.so.6"))
    (lib / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", OLD))
    return WORLD / path / TORCH / "lib"


def image_of_jupyter(machine: Machine) -> str:
    torch_lib(machine, "opt/conda")
    machine.own(machine.world / "opt" / "conda", (1000, 100), "g+rwXs")
    return "opt/conda"


def environment_of_a_user(machine: Machine) -> str:
    torch_lib(machine, "venv")
    machine.own(machine.world / "venv", ALICE.owner)
    return "venv"


@pytest.mark.parametrize(
    ("account", "make"),
    [
        pytest.param(Account(uid=1000, gid=100), image_of_jupyter, id="Jupyter's conda, by its user"),
        pytest.param(ROOT, environment_of_a_user, id="mounted environment of uid 1000, by root"),
    ],
)
def test_a_release_is_dropped_in_and_taken_out_again(
    machine: Machine, release: Path, account: Account, make: Callable[[Machine], str]
) -> None:
    path = make(machine)
    shutil.copytree(release, machine.world / "release")
    lib, here = WORLD / path / TORCH / "lib", machine.world / path / TORCH / "lib"
    before = tree(here)
    dropin = ("dropin", "--pytorch-lib", lib)
    done = machine.dev(account, *dropin, "--release", WORLD / "release")
    assert done.returncode == 0, done.stderr
    assert (here / OLD).is_symlink() and (here / OLD).stat().st_size > 100_000
    assert not [line for line in done.stderr.splitlines() if "belongs to" in line or "has mode" in line]
    undone = machine.dev(account, *dropin, "--undo")
    assert undone.returncode == 0 and tree(here) == before, undone.stderr


def tree(folder: Path) -> dict[str, int]:
    """Names and sizes, without the drop-in's own folder."""
    return {path.name: path.lstat().st_size for path in folder.iterdir() if path.name != ".aotforge-dropin"}


def prefix_of_debian(machine: Machine) -> str:
    machine.accounts(NAMES, ["staff:x:50:"])
    machine.make(Folder(path="usr/local", owner=(0, STAFF), mode=0o2775))
    return "usr/local/aotriton"


def prefix_of_a_group(machine: Machine) -> str:
    machine.make(Folder(path="opt/sw", owner=(0, DEVS), mode=0o2775))
    return "opt/sw/aotriton"


PREFIXES = (
    pytest.param(ROOT, prefix_of_debian, id="Debian's usr/local"),
    pytest.param(BOB, prefix_of_a_group, id="folder of a software group"),
)


@pytest.mark.parametrize(("account", "make"), PREFIXES)
def test_output_and_prefix(machine: Machine, account: Account, make: Callable[[Machine], str]) -> None:
    """What a task makes, and what `install` puts into a prefix."""
    path = make(machine)
    made = machine.dev(account, "wheel", "--output", WORLD / path / "wheels")
    assert (made.returncode, made.stderr) == (0, "")
    machine.settings["AOTFORGE_CACHE"] = str(WORLD / "tmp" / "cache")
    machine.make(Folder(path="tmp", mode=0o1777))
    store, trust = published(machine)
    install = (
        "install",
        "--prefix",
        WORLD / path / "prefix",
        "--arch",
        "gfx908",
        "--from",
        store,
        "--root",
        trust,
    )
    done = machine.dev(account, *install)
    assert done.returncode == 0, done.stderr
    assert (machine.world / path / "prefix/lib/aotriton.images/amd-gfx908/__signature__").is_file()


def published(machine: Machine) -> tuple[Path, Path]:
    """A store with one release, and its root of trust."""
    keys = machine.world / "keys"
    store = open_for_publishing(str(machine.world / "store"))
    publish(make_release(machine.world / "made"), store, make_keys(keys))
    shutil.copyfile(keys / "roots" / "1.root.json", machine.world / "root.json")
    return WORLD / "store", WORLD / "root.json"


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    """A build folder of the source route with ready images, before it is installed."""
    machine = new_machine(tmp_path_factory.mktemp("route") / "world", checkout)
    build = machine.make(Folder(path="bld"))
    ready_release(machine.world / "release", {"amd-gfx908": "gfx908"})
    options = [one for one in PYTORCH if "NOIMAGE" not in one]
    images = f"-DAOTRITON_IMAGES={WORLD / 'release'}"
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("cmake", "-G", "Ninja", "-S", ".", "-B", WORLD / "bld", *options, images),
        ("ninja", "-C", WORLD / "bld", "aotforge_images"),
    )
    for command in commands:
        done = machine.run(ROOT, *command, env={"AOTFORGE_SOURCES": str(zstd_archive().parent)})
        assert done.returncode == 0, done.stdout + done.stderr
    return build


@pytest.mark.parametrize(("account", "make"), PREFIXES)
def test_cmake_installs(
    machine: Machine, configured: Path, account: Account, make: Callable[[Machine], str]
) -> None:
    path = make(machine)
    machine.accounts(NAMES, ["staff:x:50:alice", "devs:x:2000:alice,bob"])
    machine.mounts["bld"] = configured
    machine.own(configured, account.owner)
    command = ("cmake", "--install", WORLD / "bld", "--component", "images", "--prefix", WORLD / path)
    done = machine.run(account, *command)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (machine.world / path / "lib/aotriton.images/amd-gfx908/__signature__").is_file()
