"""The script `dev`, before any of this project's Python runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from aotforge.base.cache_trust import ACCESS_ACL, DEFAULT_ACL
from tests.support.acl import set_acl
from tests.support.families import PROJECT
from tests.support.other_user import USER

PYTHON = f"""#!/bin/sh
for word; do
    case $word in pip) ulimit -v >"${{0%/*}}/limits"; ulimit -f >>"${{0%/*}}/limits" ;; esac
    case $word in pip | venv) exec {sys.executable} "$@" --help ;; esac
done
exec {sys.executable} "$@"
"""
"""Of pip and venv only the help: it shows which file is executed."""


def run_dev(home: Path, folder: Path) -> str:
    """Both outputs of a first run in `folder`, under the umask 000."""
    environment = os.environ | {"AOTFORGE_HOME": str(home), "AOTFORGE_PYTHON": str(home.parent / "python")}
    done = subprocess.run(
        [str(PROJECT / "dev"), "plan", "--arch", "none"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        umask=0,
    )
    return done.stdout + done.stderr


def planted_home(folder: Path) -> Path:
    """An environment that looks complete, whose Python creates the file `executed`."""
    home = folder / "home"
    binaries = home / f"venv-{sys.version_info.major}.{sys.version_info.minor}" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f"#!/bin/sh\ntouch '{folder / 'executed'}'\n")
    (binaries / "python").chmod(0o755)
    return home


def refusal(home: Path, *arguments: str) -> str:
    """The message of `dev`, which executes nothing of this home."""
    done = subprocess.run(
        [str(PROJECT / "dev"), *arguments],
        env=os.environ | {"AOTFORGE_HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 21, done.stderr
    return done.stderr


@pytest.mark.parametrize("arguments", [("plan",), ("--help",)])
@pytest.mark.parametrize("place", ["", "..", "venv-*", "venv-*/bin"])
def test_a_home_that_any_user_can_write_is_refused(
    tmp_path: Path, place: str, arguments: tuple[str, ...]
) -> None:
    home = planted_home(tmp_path)
    (folder,) = home.glob(place) if place not in ("", "..") else [home / place]
    folder.chmod(0o777)
    assert f"{folder.resolve()} can be written by any user" in refusal(home, *arguments)
    assert not (tmp_path / "executed").exists()


def test_a_home_with_the_sticky_bit_is_refused_but_not_one_below_it(tmp_path: Path) -> None:
    home = planted_home(tmp_path)
    home.chmod(0o1777)
    assert "can be written by any user" in refusal(home, "--help")
    home.chmod(0o755)
    tmp_path.chmod(0o1777)
    subprocess.run(
        [str(PROJECT / "dev"), "--help"], env=os.environ | {"AOTFORGE_HOME": str(home)}, check=True
    )
    assert (tmp_path / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another group")
@pytest.mark.parametrize("place", ["", "..", "venv-*", "venv-*/bin"])
def test_a_home_that_a_shared_group_can_write_is_refused(tmp_path: Path, place: str) -> None:
    """A member could exchange the environment between the check and its use."""
    home = planted_home(tmp_path)
    (folder,) = home.glob(place) if place not in ("", "..") else [home / place]
    folder.chmod(0o2775)  # of root's group
    assert subprocess.run(
        [str(PROJECT / "dev"), "--help"], env=os.environ | {"AOTFORGE_HOME": str(home)}, check=True
    )
    os.chown(folder, 0, USER)
    (tmp_path / "executed").unlink()
    assert f"{folder.resolve()} can be written by group {USER}" in refusal(home, "--help")
    assert not (tmp_path / "executed").exists()


GETENT = """#!/bin/sh
case "$*" in
"passwd 0") echo root:x:0:0::/:/bin/sh ;;
passwd\\ *) echo me:x:{uid}:{gid}::/:/bin/sh ;;
group\\ *) echo {name}:x:{gid}: ;;
passwd) printf '%s\\n' root:x:0:0::/:/bin/sh me:x:{uid}:{gid}::/:/bin/sh {other} ;;
esac
"""
"""Accounts of a system: root, the user with a group, perhaps another one."""


def test_a_group_that_another_account_has_is_shared(tmp_path: Path) -> None:
    """An account's first group does not list the account: distributions give some accounts root's."""
    uid, gid = os.geteuid(), os.getgid()
    name = "me" if uid else "root"
    home = planted_home(tmp_path)
    home.chmod(0o775)
    programs = tmp_path / "programs"
    programs.mkdir()
    environment = os.environ | {"AOTFORGE_HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}

    def status(other: str) -> tuple[int, str]:
        accounts = GETENT.format(uid=uid, gid=gid, name=name, other=other)
        (programs / "getent").write_text(accounts)
        (programs / "getent").chmod(0o755)
        command = [str(PROJECT / "dev"), "--help"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert status("")[0] == 0
    (tmp_path / "executed").unlink()
    code, text = status(f"other:x:{USER + 1}:{gid}::/:/bin/sh")
    assert code == 21 and f"can be written by group {gid}" in text
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("place", "attribute", "fault"),
    [
        ("", ACCESS_ACL, "has an ACL"), ("", DEFAULT_ACL, "has an ACL"), ("..", DEFAULT_ACL, ""),
        ("..", ACCESS_ACL, "can be written by group"), ("venv-*/bin", ACCESS_ACL, "can be written by group"),
    ],
)  # fmt: skip
def test_a_home_that_another_user_can_write_by_an_acl_is_refused(
    tmp_path: Path, place: str, attribute: str, fault: str
) -> None:
    """The mode shows the rights of the ACL's users as those of the folder's group."""
    home = planted_home(tmp_path)
    (folder,) = home.glob(place) if place not in ("", "..") else [home / place]
    set_acl(folder, USER, attribute=attribute)
    if fault:
        assert f"{folder.resolve()} {fault}" in refusal(home, "--help")
    else:
        environment = os.environ | {"AOTFORGE_HOME": str(home)}
        subprocess.run([str(PROJECT / "dev"), "--help"], env=environment, check=True)
    assert (tmp_path / "executed").exists() is not bool(fault)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("kind", ["pipe", "link", "file", "another name"])
def test_a_lock_that_another_user_left_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe was waited for by every command; the mode of the file behind a link was changed."""
    home = planted_home(tmp_path)
    lock, mine = home / ".dev.lock", tmp_path / "mine"
    mine.touch(0o644)
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "link":
        lock.symlink_to(mine)
    elif kind == "another name":
        lock.hardlink_to(mine)
    else:
        lock.touch()
    if kind != "another name":
        os.chown(lock, USER, USER, follow_symlinks=False)
    assert f"{lock} is not a file of this user alone" in refusal(home, "plan")
    assert mine.stat().st_mode & 0o777 == 0o644 and not (tmp_path / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize(
    "place",
    ["", "..", "venv-*", "venv-*/bin/python", "venv-*/lib/*/site-packages", "venv-*/lib/*/*/x.pth", "venv-*/pyvenv.cfg",
     "venv-*/bin/ninja", "venv-*/lib/*/*/package/module.py", "docs-1/pyvenv.cfg"],
)  # fmt: skip
def test_a_home_of_another_user_is_refused(tmp_path: Path, place: str) -> None:
    home = planted_home(tmp_path)
    (environment,) = home.glob("venv-*")
    packages = "lib/python3.11/site-packages"
    for name in (
        "pyvenv.cfg",
        "bin/ninja",
        f"{packages}/x.pth",
        f"{packages}/package/module.py",
        "../docs-1/pyvenv.cfg",
    ):
        (environment / name).parent.mkdir(parents=True, exist_ok=True)
        (environment / name).touch()
    (path,) = home.glob(place) if place not in ("", "..") else [home / place]
    os.chown(path, USER, USER)
    text = refusal(home, "plan")
    assert (
        f"dev: AOTFORGE_HOME={home} is not used: {path.resolve()} belongs to user {USER}, not to user 0"
        in text
    )
    assert "Likely cause: " in text and "Next step: " in text
    assert not (tmp_path / "executed").exists() and not (home / ".dev.lock").exists()


@pytest.mark.parametrize(
    "place", ["pyvenv.cfg", "bin/ninja", "lib/python3.11/site-packages/package/module.py"]
)
def test_files_of_an_environment_that_others_can_write_are_refused(tmp_path: Path, place: str) -> None:
    """pyvenv.cfg names the folder of the standard library; an unusual name is not an option."""
    home = planted_home(tmp_path / "a b\nc")
    (environment,) = home.glob("venv-*")
    path = environment / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    command, executed = [str(PROJECT / "dev"), "--help"], home.parent / "executed"
    (path.parent / "link").symlink_to(path.name)
    path.chmod(0o660)  # of root's group, or the user's own
    set_acl(path, USER)
    assert path.name in (text := refusal(home, "--help")) and "or by an ACL" in text
    path.unlink()
    path.touch()
    path.chmod(0o662)
    assert path.name in (text := refusal(home, "--help")) and "can be written by any user" in text
    if os.geteuid() == 0:
        path.chmod(0o660)
        subprocess.run(command, env=os.environ | {"AOTFORGE_HOME": str(home)}, check=True)
        executed.unlink()
        os.chown(path, 0, USER)
        assert path.name in (text := refusal(home, "--help")) and f"can be written by group {USER}" in text
    assert not executed.exists()
    path.chmod(0o640)
    subprocess.run(command, env=os.environ | {"AOTFORGE_HOME": str(home)}, check=True)
    assert executed.exists()


@pytest.mark.parametrize("place", ["venv-*", "venv-*/lib/python3.11", "venv-*/bin", "venv-*/a.py", "docs-1"])
def test_a_link_out_of_the_home_to_an_environment_is_refused(tmp_path: Path, place: str) -> None:
    """Another user may own a folder on the way, and exchange the environment between its check and its use."""
    home = planted_home(tmp_path)
    (environment,) = home.glob("venv-*")
    for folder in (environment / "lib" / "python3.11", home / "docs-1", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    (environment / "lib64").symlink_to("lib")
    (environment / "a.py").touch()
    (environment / "bin" / "tool").symlink_to("/usr/bin/env")
    (path,) = home.glob(place)
    path.rename(tmp_path / "elsewhere" / "moved")
    path.symlink_to(tmp_path / "elsewhere" / "moved")
    fault = "is a link" if path.parent == home else "leads elsewhere"
    assert f"{path} {fault}" in refusal(home, "--help")
    (tmp_path / "elsewhere" / "moved").rename(tmp_path / "elsewhere" / "gone")
    if path.parent == home:
        assert f"{path.name} is a link" in refusal(home, "--help")
    assert not (tmp_path / "executed").exists()
    path.unlink()
    (tmp_path / "elsewhere" / "gone").rename(path)
    (tmp_path / "linked").symlink_to(home)
    for spelling in (
        home,
        f"{home}/",
        f"{home}/.",
        f"{tmp_path}//{home.name}",
        f"{home}/../{home.name}",
        tmp_path / "linked",
    ):
        environ = os.environ | {"AOTFORGE_HOME": str(spelling)}
        subprocess.run([str(PROJECT / "dev"), "--help"], env=environ, check=True)
        (tmp_path / "executed").unlink()


@pytest.mark.parametrize("place", ["", "venv-*", "venv-*/lib/python3.11"])
def test_a_link_out_of_the_checkout_s_own_environment_is_refused(tmp_path: Path, place: str) -> None:
    """Folders of gigabytes are moved to another disk, where another user may make them anew."""
    checkout, planted = tmp_path / "checkout", planted_home(tmp_path)
    (environment,) = planted.glob("venv-*")
    (environment / "lib" / "python3.11").mkdir(parents=True)
    checkout.mkdir()
    shutil.copy(PROJECT / "dev", checkout)
    shutil.copytree(planted, checkout / ".aotforge")
    command = [str(checkout / "dev"), "--help"]
    environ = {name: value for name, value in os.environ.items() if name != "AOTFORGE_HOME"}
    if os.geteuid() == 0:
        os.chown(checkout / ".aotforge", USER, USER)  # the checkout may be another user's
    subprocess.run(command, env=environ, check=True)
    (tmp_path / "executed").unlink()
    (moved,) = (checkout / ".aotforge").glob(place) if place else [checkout / ".aotforge"]
    moved.rename(tmp_path / "moved")
    moved.symlink_to(tmp_path / "moved")
    (tmp_path / "moved").chmod(0o777)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 21 and f"dev: {checkout}/.aotforge is not used: " in done.stderr
    assert not (tmp_path / "executed").exists()
    if not place:
        os.chown(tmp_path / "moved", os.geteuid(), os.getegid())
        (tmp_path / "moved").chmod(0o755)
        subprocess.run(command, env=environ, check=True)


PLANT = """#!/bin/sh
PATH=/usr/bin:/bin
plant() {{ [ -e {home} ] || {{ cp -a {planted} {home} && chown -R {user} {home}; }} }}
"""
"""Start of a program that `dev` calls: another user makes the home then, if it is absent."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("arguments", [("plan",), ("--help",)])
@pytest.mark.parametrize(
    "program",
    ['plant; exec readlink "$@"', 'plant; exec mkdir "$@"', 'stat "$@"; status=$?; plant; exit $status'],
)
def test_a_home_that_another_user_makes_meanwhile_is_not_executed(
    tmp_path: Path, program: str, arguments: tuple[str, ...]
) -> None:
    home, planted = tmp_path / "new" / "home", planted_home(tmp_path)
    (home.parent / "bin").mkdir(parents=True)
    (planted / f"venv-{sys.version_info.major}.{sys.version_info.minor}" / ".made").write_text("3.x")
    name = re.findall("readlink|mkdir|stat ", program)[0].strip()
    wrapper, python = home.parent / "bin" / name, home.parent / "python"
    wrapper.write_text(PLANT.format(home=home, planted=planted, user=USER) + program + "\n")
    python.write_text(PYTHON)
    for path in (wrapper, python):
        path.chmod(0o755)
    environment = os.environ | {
        "AOTFORGE_HOME": str(home),
        "AOTFORGE_PYTHON": str(python),
        "PATH": f"{wrapper.parent}:/usr/bin:/bin",
    }
    if "--help" in arguments:
        del environment["AOTFORGE_PYTHON"]
    subprocess.run(
        [str(PROJECT / "dev"), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert not (tmp_path / "executed").exists()


def test_a_home_whose_name_is_like_an_option(tmp_path: Path) -> None:
    planted_home(tmp_path).rename(tmp_path / "-x")
    subprocess.run(
        [str(PROJECT / "dev"), "--help"], cwd=tmp_path, env=os.environ | {"AOTFORGE_HOME": "-x"}, check=True
    )
    assert (tmp_path / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_home_through_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    home = planted_home(tmp_path)
    (tmp_path / "link").symlink_to(home.parent)
    os.lchown(tmp_path / "link", USER, USER)
    assert f"{tmp_path / 'link'} belongs to user {USER}" in refusal(tmp_path / "link" / "home", "plan")
    (tmp_path / "own").symlink_to("link/home")  # of this user, but on through the other's
    assert f"{tmp_path / 'link'} belongs to user {USER}" in refusal(tmp_path / "own", "plan")
    assert f"{tmp_path / 'link'} belongs to user {USER}" in refusal(tmp_path / "own", "--help")


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (":/opt/x", "/opt/x"),
        ("/opt/x:", "/opt/x"),
        ("::", ""),
        (".", ""),
        ("a:/b::/c d:./e", "/b:/c d"),
        ("/*:/x", "/*:/x"),
    ],
)
def test_parts_of_the_module_path_that_mean_the_current_folder_are_left_out(
    tmp_path: Path, path: str, kept: str
) -> None:
    """For every Python, the first one too: its modules could be executed before any code of this project."""
    (tmp_path / "encodings.py").write_text("print('planted')")
    home = planted_home(tmp_path / "new")
    (python,) = home.glob("venv-*/bin/python")
    python.write_text('#!/bin/sh\necho "path=$PYTHONPATH$(env | grep =planted)"\n')
    planted = dict.fromkeys(
        ("PYTHONSAFEPATH", "PYTHONPYCACHEPREFIX", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONUSERBASE"),
        "planted",
    )
    done = subprocess.run(
        [str(PROJECT / "dev"), "--help"],
        env=os.environ | {"AOTFORGE_HOME": str(home), "PYTHONPATH": path} | planted,
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"path={kept}\n", done.stderr


def test_modules_of_the_current_folder_are_not_imported_and_only_this_user_may_write_the_environment(
    tmp_path: Path,
) -> None:
    """The current folder may be /tmp, where another user has put a pip.py."""
    python, folder, home = tmp_path / "python", tmp_path / "folder", tmp_path / "home"
    python.write_text(PYTHON)
    python.chmod(0o755)
    folder.mkdir()
    for name in ("pip", "venv", "ensurepip", "sys", "site"):
        (folder / f"{name}.py").write_text(f"print('planted {name}')")
    assert "planted" not in run_dev(home, folder)  # it makes the environment
    made = home / f"venv-{sys.version_info.major}.{sys.version_info.minor}"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(python)
    (made / ".made").write_text(f"{sys.version_info.major}.{sys.version_info.minor}\n")
    (home / ".dev.lock").touch(0o644)  # of an earlier version
    assert "planted" not in run_dev(home, folder)  # it installs packages
    assert (made / ".build.sha256").exists()
    # an index may send without end
    assert "unlimited" not in (made / "bin" / "limits").read_text().split()
    written = (home, home / ".dev.lock", made / ".build.sha256")
    assert [path for path in written if path.stat().st_mode & 0o022] == []
    assert (home / ".dev.lock").stat().st_mode & 0o777 == 0o600, "others could hold the lock"


PIP = """\
import os, pathlib, signal, time
path = pathlib.Path(os.environ["AOTFORGE_HOME"]) / f"pip-{os.getpid()}"
path.with_name("new").write_text(str(signal.alarm(0)))
path.with_name("new").rename(path)
time.sleep(300)
"""


def test_an_index_without_end_holds_up_only_those_who_install_and_as_long_as_its_own_run(
    tmp_path: Path,
) -> None:
    """Its pip went on when `dev` was ended, and had the lock."""
    home, modules = tmp_path / "home", tmp_path / "modules"
    made = home / f"venv-{sys.version_info.major}.{sys.version_info.minor}"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (made / "bin" / "python").chmod(0o755)
    (made / ".made").write_text(f"{sys.version_info.major}.{sys.version_info.minor}\n")
    (modules / "pip").mkdir(parents=True)
    (modules / "pip" / "__init__.py").touch()
    (modules / "pip" / "__main__.py").write_text(PIP)
    command = [str(PROJECT / "dev"), "plan", "--arch", "none"]
    environment = os.environ | {"AOTFORGE_HOME": str(home), "PYTHONPATH": str(modules), "CI": "1"}
    environment.pop("AOTFORGE_PYTHON", None)

    def started(beside: Path | None = None) -> Path:
        """The file of a pip that runs, but for that of another one."""
        wait_until(lambda: {*home.glob("pip-*")} - {beside})
        return ({*home.glob("pip-*")} - {beside}).pop()

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a caller's, which children keep
    try:
        first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    finally:
        signal.signal(signal.SIGTERM, before)
    with first, ExitStack() as ended:
        ended.callback(first.kill)
        pip = started()
        assert 7000 < int(pip.read_text()) <= 7200, "seconds that its alarm left"
        second = ended.enter_context(
            subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        )
        ended.callback(second.kill)
        assert second.stderr and "waiting for another run" in second.stderr.readline()
        (made / ".tools.sha256").write_text(stamp_of("tools"))
        (made / ".build.sha256").write_text(stamp_of("build"))
        third = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert "unknown arch none" in third.stderr and third.returncode
        (made / ".build.sha256").unlink()
        first.kill()
        wait_until(lambda: not Path(f"/proc/{pip.name.removeprefix('pip-')}").exists())
        started(pip)


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("nothing happened for a minute")


def stamp_of(name: str) -> str:
    """What `dev` writes when a list is installed."""
    return hashlib.sha256((PROJECT / "requirements" / f"{name}.txt").read_bytes()).hexdigest()


def test_a_home_with_a_line_end_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """It was taken for a folder above the home, which may have mode 1777."""
    home = tmp_path / "a\nb"
    home.mkdir()
    home.chmod(0o1777)
    text = refusal(home, "--list")
    assert "b can be written by any user" in text and list(home.iterdir()) == []


def test_a_path_with_a_colon_is_refused(tmp_path: Path) -> None:
    """PATH would then have a part that starts at the current folder."""
    (tmp_path / "a:b").mkdir()
    copy = shutil.copy(PROJECT / "dev", tmp_path / "a:b" / "dev")
    for dev, home in ((copy, tmp_path / "new"), (PROJECT / "dev", tmp_path / "a:b" / "new")):
        done = subprocess.run(
            [str(dev), "--help"],
            env=os.environ | {"AOTFORGE_HOME": str(home)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 14 and "a:b" in done.stderr and "colon in its path" in done.stderr
