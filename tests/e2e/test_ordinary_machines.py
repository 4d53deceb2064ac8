"""Shared machines, containers, CI runners: tasks work, and warn once at most, of the cache alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    make_home,
    new_machine,
    reason,
    share,
)
from tests.integration.source_route.ready_images import release as ready_release
from tests.integration.source_route.routes import PYTORCH, zstd_archive
from tests.support.dev_home import VERSION
from tests.support.publishing import make_keys, make_release, publish
from tests.support.releases import build_small
from tests.support.runtime import CACHE
from tests.support.torch_lib import OLD

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(bool(reason()), reason=reason() or "machines can be simulated"),
]

ROOT = Account(uid=0, gid=0)
ALICE = Account(uid=1000, gid=1000, groups=(2000,))
BOB = Account(uid=1002, gid=1002, groups=(2000,), umask=0o002)
OTHER = (1001, 1001)
"""The owner of what is shared: an administrator of storage, the head of a group, a runner."""
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


def job_in_a_container(machine: Machine) -> None:
    machine.place = "__w/w"
    machine.make(Folder(path="__w", owner=OTHER))
    cache(machine, ROOT.owner)


def gitlab(machine: Machine) -> None:
    machine.place = "builds/x/w"
    machine.make(Folder(path="builds/x", mode=0o777))
    cache(machine, ROOT.owner, 0o777)
    machine.own(machine.checkout, ROOT.owner, "a+rwX")


def project_of_another(machine: Machine) -> None:
    machine.place = "project/alice/w"
    machine.make(Folder(path="project", owner=OTHER))
    machine.make(Folder(path="project/alice", owner=ALICE.owner))
    cache(machine, ALICE.owner)
    machine.own(machine.checkout, ALICE.owner)


def home_behind_a_link(machine: Machine) -> None:
    machine.place = "home/alice/w"
    machine.make(Folder(path="data", owner=OTHER))
    machine.make(Folder(path="data/alice/w", owner=ALICE.owner))
    machine.make(Folder(path="home"))
    (machine.world / "home" / "alice").symlink_to("../data/alice")
    machine.own(machine.checkout, ALICE.owner)


def team_folder(machine: Machine) -> None:
    machine.place = "shared/w"
    machine.make(Folder(path="shared", owner=(ALICE.uid, DEVS), mode=0o2775))
    machine.accounts(NAMES, ["devs:x:2000:alice,bob"])
    machine.own(machine.checkout, (ALICE.uid, DEVS), "g+rwXs")


def user_without_a_name(machine: Machine) -> None:
    cache(machine, (4242, 4242), 0o775)
    machine.own(machine.checkout, (4242, 4242), "g+rwX")


def group_with_another_member(machine: Machine) -> None:
    machine.accounts(
        [*NAMES, "www-data:x:33:33::/var/www:/bin/sh"], ["alice:x:1000:www-data", "www-data:x:33:"]
    )
    cache(machine, ALICE.owner, 0o775)
    machine.own(machine.checkout, ALICE.owner, "g+rwX")


def group_of_root_with_an_operator(machine: Machine) -> None:
    machine.place = "opt/app/w"
    machine.accounts(["operator:x:11:0:operator:/root:/sbin/nologin"], ["root:x:0:"])
    machine.make(Folder(path="opt/app", mode=0o775))
    cache(machine, ROOT.owner, 0o775)
    machine.own(machine.checkout, ROOT.owner, "g+rwX")


def cache_of_a_private_group(machine: Machine) -> None:
    machine.accounts(NAMES, ["alice:x:1000:"])
    cache(machine, ALICE.owner, 0o775, "tmp/c")


def cache_of_a_team(machine: Machine) -> None:
    machine.accounts(NAMES, ["devs:x:2000:alice,bob"])
    cache(machine, (ALICE.uid, DEVS), 0o2775, "srv/c")


def folder_with_an_acl(machine: Machine) -> None:
    machine.place = "proj/w"
    for folder in (machine.make(Folder(path="proj", owner=ALICE.owner)), cache(machine, ALICE.owner)):
        share(folder, BOB.uid)
    machine.own(machine.checkout, ALICE.owner)


def drive_of_windows(machine: Machine) -> None:
    machine.place = "c/w"
    machine.make(Folder(path="c", owner=ALICE.owner, mode=0o777))
    cache(machine, ALICE.owner, 0o777)
    machine.own(machine.checkout, ALICE.owner, "a+rwx")


def home_of_the_user_of_sudo(machine: Machine) -> None:
    home = machine.make(Folder(path="home/alice/.aotforge"))
    make_home(home)
    (home / "cache").mkdir()
    machine.own(home.parent, ALICE.owner)
    machine.settings["AOTFORGE_HOME"] = str(WORLD / "home" / "alice" / ".aotforge")


def environment_behind_a_link(machine: Machine) -> None:
    disk = machine.make(Folder(path="disk"))
    made = machine.checkout / ".aotforge" / f"venv-{VERSION}"
    made.rename(disk / made.name)
    made.symlink_to(WORLD / "disk" / made.name)
    machine.own(disk, ALICE.owner)
    machine.own(machine.checkout, ALICE.owner)


CASES = (
    Case(
        name="checkout of uid 1000 mounted into a container of root",
        account=ROOT,
        make=mounted_checkout,
        warned=True,
    ),
    Case(name="container job below a folder of the runner's user", account=ROOT, make=job_in_a_container),
    Case(
        name="GitLab's clone with umask 0000",
        account=Account(uid=0, gid=0, umask=0),
        make=gitlab,
        warned=True,
    ),
    Case(name="project folder of another user", account=ALICE, make=project_of_another),
    Case(name="home behind a link", account=ALICE, make=home_behind_a_link),
    Case(name="setgid folder of a team", account=ALICE, make=team_folder),
    Case(
        name="user without a passwd entry, umask 002",
        account=Account(uid=4242, gid=4242, umask=0o002),
        make=user_without_a_name,
    ),
    Case(name="own group with another member", account=ALICE, make=group_with_another_member),
    Case(name="root's group has an operator", account=ROOT, make=group_of_root_with_an_operator),
    Case(name="cache of a private group", account=ALICE, make=cache_of_a_private_group),
    Case(name="shared cache, by its owner", account=ALICE, make=cache_of_a_team),
    Case(name="shared cache, by a member", account=BOB, make=cache_of_a_team, warned=True),
    Case(name="ACL for a colleague", account=ALICE, make=folder_with_an_acl),
    Case(name="drive of Windows", account=ALICE, make=drive_of_windows, warned=True),
    Case(name="sudo with the home of alice", account=ROOT, make=home_of_the_user_of_sudo, warned=True),
    Case(name="environment behind a link", account=ALICE, make=environment_behind_a_link),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_task_works_and_warns_of_a_cache_of_others_alone(machine: Machine, case: Case) -> None:
    case.make(machine)
    shown = machine.dev(case.account, "cache")
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stderr.splitlines()) == case.warned, shown.stderr
    assert not case.warned or ("warning" in shown.stderr and "cache" in shown.stderr)
    doctor = machine.dev(case.account, "doctor")
    assert doctor.returncode in (0, 39), doctor.stderr
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


def local_of_debian(machine: Machine) -> str:
    machine.accounts(NAMES, ["staff:x:50:"])
    machine.make(Folder(path="usr/local", owner=(0, STAFF), mode=0o2775))
    machine.make(Folder(path="usr/local/lib", owner=(0, STAFF), mode=0o2775))
    torch_lib(machine, "usr/local")
    return "usr/local"


def environment_without_a_name(machine: Machine) -> str:
    torch_lib(machine, "venv")
    machine.own(machine.world / "venv", (4242, 4242), "g+rwX")
    return "venv"


def environment_in_a_project(machine: Machine) -> str:
    machine.make(Folder(path="project", owner=OTHER))
    torch_lib(machine, "project/alice/venv")
    machine.own(machine.world / "project" / "alice", ALICE.owner)
    return "project/alice/venv"


@pytest.mark.parametrize(
    ("account", "make"),
    [
        pytest.param(Account(uid=1000, gid=100), image_of_jupyter, id="Jupyter's conda, by its user"),
        pytest.param(ROOT, image_of_jupyter, id="Jupyter's conda, by root"),
        pytest.param(ROOT, environment_of_a_user, id="mounted environment of uid 1000, by root"),
        pytest.param(ROOT, local_of_debian, id="Debian's usr/local, by root"),
        pytest.param(
            Account(uid=4242, gid=4242, umask=0o002),
            environment_without_a_name,
            id="umask 002, no passwd entry",
        ),
        pytest.param(ALICE, environment_in_a_project, id="environment below a project folder of another"),
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
    local_of_debian(machine)
    return "usr/local/lib/aotriton"


def prefix_of_a_group(machine: Machine) -> str:
    machine.make(Folder(path="opt/sw", owner=(0, DEVS), mode=0o2775))
    return "opt/sw/aotriton"


def prefix_in_a_project(machine: Machine) -> str:
    machine.make(Folder(path="project", owner=OTHER))
    machine.make(Folder(path="project/alice", owner=ALICE.owner))
    return "project/alice/out"


PREFIXES = (
    pytest.param(ROOT, prefix_of_debian, id="Debian's usr/local"),
    pytest.param(BOB, prefix_of_a_group, id="folder of a software group"),
    pytest.param(ALICE, prefix_in_a_project, id="below a project folder of another"),
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


@pytest.mark.parametrize("build_mode", ["u=rwX,go=rX", "a+rwX"])
@pytest.mark.parametrize(("account", "make"), PREFIXES)
def test_cmake_installs(
    machine: Machine, configured: Path, account: Account, make: Callable[[Machine], str], build_mode: str
) -> None:
    path = make(machine)
    machine.accounts(NAMES, ["staff:x:50:alice", "devs:x:2000:alice,bob"])
    machine.mounts["bld"] = configured
    machine.own(configured, account.owner, build_mode)
    command = ("cmake", "--install", WORLD / "bld", "--component", "images", "--prefix", WORLD / path)
    done = machine.run(account, *command)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (machine.world / path / "lib/aotriton.images/amd-gfx908/__signature__").is_file()


@pytest.mark.parametrize(
    ("variable", "task"),
    [
        ("GITHUB_TOKEN", ("check", "--only", "refusal")),
        ("HF_TOKEN", ("verify",)),
    ],
)
def test_a_release_of_others_by_a_user_with_a_token(
    machine: Machine, release: Path, variable: str, task: tuple[str, ...]
) -> None:
    """On a machine without bubblewrap, as most are."""
    machine.mounts["cache"] = CACHE
    machine.settings["AOTFORGE_CACHE"] = str(WORLD / "cache")
    shutil.copytree(release, machine.world / "release")
    done = machine.dev(ROOT, *task, "--release", WORLD / "release", env={variable: "x"})
    assert done.returncode == 0 and variable not in done.stdout + done.stderr, done.stderr


def test_a_release_folder_whose_files_are_links(machine: Machine, release: Path) -> None:
    """As Nix, Bazel and git-annex have it."""
    shutil.copytree(release, machine.world / "objects")
    folder = machine.make(Folder(path="release"))
    for path in sorted((machine.world / "objects").iterdir()):
        (folder / path.name).symlink_to(WORLD / "objects" / path.name)
    torch_lib(machine, "venv")
    machine.mounts["cache"] = CACHE
    machine.settings["AOTFORGE_CACHE"] = str(WORLD / "cache")
    for task in (
        ("check", "--only", "folder,layout"),
        ("verify", "--only", "add"),
        ("dropin", "--dry-run", "--pytorch-lib", WORLD / "venv" / TORCH / "lib"),
    ):
        done = machine.dev(ROOT, *task, "--release", WORLD / "release")
        assert done.returncode == 0, done.stdout + done.stderr


def test_two_users_of_a_group_publish_to_one_folder(machine: Machine) -> None:
    """In turn and at once."""
    machine.accounts(NAMES, ["devs:x:2000:alice,bob"])
    machine.make(Folder(path="srv/store", owner=(ALICE.uid, DEVS), mode=0o2775))
    machine.make(Folder(path="tmp", mode=0o1777))
    make_keys(machine.world / "keys-1000")
    shutil.copytree(machine.world / "keys-1000", machine.world / "keys-1002")
    users = [replace(one, gid=DEVS, umask=0o002) for one in (ALICE, BOB)]
    for one in users:
        machine.own(machine.world / f"keys-{one.uid}", one.owner)
    releases = [f"0.11.2b-r{number}" for number in range(1, 5)]
    for name in releases:
        make_release(machine.world / name, name)

    def command(user: Account, name: str) -> tuple[str | Path, ...]:
        machine.settings["AOTFORGE_CACHE"] = str(WORLD / "tmp" / f"cache-{user.uid}")
        keys = ("--to", WORLD / "srv/store", "--keys", WORLD / f"keys-{user.uid}")
        return ("./dev", "release.publish", "--folder", WORLD / name, *keys)

    for user, name in zip(users, releases[:2], strict=True):
        done = machine.run(user, *command(user, name))
        assert done.returncode == 0, done.stderr
    started = [
        machine.start(user, *command(user, name)) for user, name in zip(users, releases[2:], strict=True)
    ]
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    shown = machine.dev(
        users[0],
        "release.list",
        "--from",
        WORLD / "srv/store",
        "--root",
        WORLD / "keys-1000/roots/1.root.json",
    )
    assert shown.returncode == 0 and all(name in shown.stdout for name in releases), (
        shown.stdout + shown.stderr
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_linters_list_the_files_of_a_checkout_of_another_user(machine: Machine) -> None:
    """Git alone calls its owner dubious."""
    mounted_checkout(machine)
    refused = machine.run(ROOT, "git", "status", env={"GIT_CONFIG_NOSYSTEM": "1"})
    assert "dubious ownership" in refused.stderr
    command = (
        f".aotforge/venv-{VERSION}/bin/python",
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-q",
    )
    done = machine.run(ROOT, *command, "tests/lint/test_conventions.py::test_no_banned_word")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
