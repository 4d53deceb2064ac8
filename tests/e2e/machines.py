"""Ordinary machines, simulated by root in mount namespaces: users, owners, modes and folders of others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.checkouts import ROOT, copy_checkout
from tests.support.dev_home import VERSION, stamp_of

WORLD = Path("/mnt")
"""Where a command sees a machine's folders; every distribution has it."""
ENGINES = ("docker", "podman", "bwrap")
"""Programs that few machines have; calling them takes longer than all other checks."""

_ENTER = """
mount --bind "$WORLD" /mnt
echo "$MOUNTS" | while IFS="|" read -r from to; do mount --bind "$from" "/mnt/$to"; done
for name in passwd group; do
    [ ! -e "/mnt/etc/$name" ] || mount --bind "/mnt/etc/$name" "/etc/$name"
done
for name in $HIDDEN; do mount --bind /dev/null "$name"; done
cd "/mnt/$PLACE"
exec setpriv --reuid "$USER_ID" --regid "$GROUP_ID" $GROUPS_OPTION -- "$@"
"""


@cache
def reason() -> str:
    """Why this process cannot simulate machines; empty where it can."""
    if os.geteuid() != 0:
        return "only root can simulate other users and their folders"
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        return "needs unshare and setpriv of util-linux"
    command = ["unshare", "--mount", "mount", "--bind", "/tmp", "/mnt"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return "this sandbox mounts no folders"
    return ""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who executes a command, with which umask."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o022

    @property
    def owner(self) -> tuple[int, int]:
        """As an owner of files."""
        return self.uid, self.gid


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of a machine that is not root's with mode 755."""

    path: str
    owner: tuple[int, int] = (0, 0)
    mode: int = 0o755


@dataclass(kw_only=True)
class Machine:
    """`world`: its folders on this machine; `place`: where the checkout is in it."""

    world: Path
    checkout: Path
    place: str = "w"
    settings: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Path] = field(default_factory=dict)
    """Folders from elsewhere, by their path in `world`."""

    def make(self, folder: Folder) -> Path:
        """A folder, with those above it as root's."""
        path = self.world / folder.path
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, *folder.owner)
        path.chmod(folder.mode)
        return path

    def own(self, path: Path, owner: tuple[int, int], mode: str = "") -> None:
        """Give a tree to an owner, with a change of its modes as chmod writes it."""
        subprocess.run(["chown", "-hR", f"{owner[0]}:{owner[1]}", path], check=True)
        if mode:
            subprocess.run(["chmod", "-R", mode, path], check=True)

    def accounts(self, passwd: Sequence[str] = (), group: Sequence[str] = ()) -> None:
        """The files /etc/passwd and /etc/group."""
        (self.world / "etc").mkdir(exist_ok=True)
        (self.world / "etc" / "passwd").write_text("\n".join(["root:x:0:0:root:/root:/bin/sh", *passwd, ""]))
        (self.world / "etc" / "group").write_text("\n".join(["root:x:0:", *group, ""]))

    def run(
        self, account: Account, *command: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command on it, in the checkout's folder."""
        mounts = {
            self.place: self.checkout,
            "python": Path(sys.base_prefix),
            "packages": Path(sys.prefix),
            **self.mounts,
        }
        for name in mounts:
            (self.world / name).mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_", "PYTHON"))}
        groups = ",".join(map(str, account.groups))
        found = [str(Path(path).resolve()) for path in map(shutil.which, ENGINES) if path]
        settings = {
            "WORLD": str(self.world), "PLACE": self.place, "HIDDEN": " ".join(found),
            "MOUNTS": "\n".join(f"{source}|{name}" for name, source in mounts.items()),
            "USER_ID": str(account.uid), "GROUP_ID": str(account.gid),
            "GROUPS_OPTION": f"--groups {groups}" if groups else "--clear-groups",
            "HOME": "/nonexistent", "LD_LIBRARY_PATH": "/mnt/python/lib",
            "PIP_INDEX_URL": "http://127.0.0.1:9/",
        }  # fmt: skip
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _ENTER, "sh", *command],
            env=kept | settings | self.settings | dict(env or {}), umask=account.umask, cwd="/",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def dev(
        self, account: Account, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A task of the checkout."""
        return self.run(account, "./dev", *arguments, env=env)


def make_home(folder: Path) -> Path:
    """The environment that `dev` makes in AOTFORGE_HOME, of the packages that execute this test."""
    made = folder / f"venv-{VERSION}"
    (made / "bin").mkdir(parents=True)
    interpreter = Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())
    (made / "bin" / "python").symlink_to(WORLD / "python" / interpreter)
    (made / "pyvenv.cfg").write_text(f"home = {(WORLD / 'python' / interpreter).parent}\n")
    (made / "lib").symlink_to(WORLD / "packages" / "lib")
    (made / ".made").write_text(f"{VERSION}\n")
    for path in (ROOT / "requirements").glob("*.txt"):
        (made / f".{path.stem}.sha256").write_text(stamp_of(path.stem))
    return made


def make_checkout(folder: Path) -> Path:
    """A clone with bytecode, which a user who cannot write it would compile for each command."""
    if not Path(sys.prefix, "pyvenv.cfg").is_file():
        pytest.skip("needs the environment that ./dev makes")
    copy_checkout(folder)
    command = [
        sys.executable,
        "-m",
        "compileall",
        "-q",
        "tasks.py",
        "aotforge/cli",
        "aotforge/base",
        "aotforge/devtools",
        "vgpu",
    ]
    subprocess.run(command, cwd=folder, check=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "sources"]):
        if shutil.which("git"):
            subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


def new_machine(world: Path, checkout: Path) -> Machine:
    """A machine on which everything is root's, with mode 755 and an environment in the checkout."""
    world.mkdir(mode=0o755)
    shutil.rmtree(checkout / ".aotforge", ignore_errors=True)
    made = Machine(world=world, checkout=checkout)
    make_home(checkout / ".aotforge")
    made.own(checkout, (0, 0), "u=rwX,go=rX")
    return made
