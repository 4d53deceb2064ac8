"""A user's view of the project: copies of the checkout in folders of their own, and tasks run in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.project_files import project_files

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge")


def copy_checkout(target: Path) -> Path:
    """The project's files as they are now."""
    for name in project_files(ROOT):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


def shrink_smoke(checkout: Path, *, windows: bool = False) -> None:
    """Profile `smoke` with `add` and `flash`, causal masks and windows if `windows`: for tests of builds."""
    profiles = checkout / "manifests" / "profiles.yaml"
    before, name, rest = profiles.read_text().partition("  smoke:")
    old = "flash.mask: [full, window]\n"
    new = old if windows else "flash.mask: [full]\n"
    assert old in rest
    others = {path.parent.name for path in checkout.glob("kernels/*/rules.py")} - {"add", "flash"}
    smoke = rest.partition("\n  quick:")[0]  # which may leave out a family itself
    lines = [f"      {family}.dtype: []\n" for family in sorted(others)]
    new += "".join(line for line in lines if line not in smoke)
    profiles.write_text(before + name + rest.replace(old, new, 1))


def share_interpreter(cache: Path) -> None:
    """Let a new cache use the project's compiled interpreters: compiling them takes half a minute."""
    ours = HOME / "cache" / "emulator-1"
    ours.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    link = cache / ours.name
    if link.is_symlink() and not link.exists():  # to another home that is gone
        link.unlink(missing_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(ours)


def command(*arguments: str) -> list[str]:
    """A task of the checkout in the current folder, in the environment that runs the tests."""
    return [sys.executable, "tasks.py", *arguments]


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment with everything that is kept between builds inside `folder`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_", "TRITON_"))}
    kept["AOTFORGE_HOME"] = str(folder / ".aotforge")
    share_interpreter(folder / ".aotforge" / "cache")
    # the one download of a build; the project's copy, when there is one, saves it
    for archive in (HOME / "cache" / "sources").glob("*/zstandard-*.tar.gz"):
        kept["AOTFORGE_SOURCES"] = str(archive.parent)
    return kept | dict(extra or {})


def invoke(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    umask: int = 0o022,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a task in a checkout; a failure shows what it printed."""
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(folder, env),
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"{arguments} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def build_json(folder: Path, *arguments: str, **settings: Any) -> dict[str, Any]:
    """`./dev build --arch gfx908 --json ...`, decoded."""
    done = invoke(folder, "build", "--arch", "gfx908", "--json", *arguments, **settings)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def tarballs(report: Mapping[str, Any]) -> dict[str, str]:
    """File name to SHA-256, as the report has them."""
    files: Sequence[Mapping[str, str]] = report["files"]
    return {file["name"]: file["sha256"] for file in files}
