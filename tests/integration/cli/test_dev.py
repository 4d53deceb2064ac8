"""The script `dev`, before any of this project's Python runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.families import PROJECT

PYTHON = f"""#!/bin/sh
for word; do
    flags="$flags $word"
    case $word in pip | venv) exec {sys.executable} $flags --help ;; esac
done
exec {sys.executable} "$@"
"""
"""Of pip and venv only the help: it shows which file is executed."""


def run_dev(home: Path, folder: Path) -> str:
    """Both outputs of a first run in `folder`."""
    environment = os.environ | {"AOTFORGE_HOME": str(home), "AOTFORGE_PYTHON": str(home.parent / "python")}
    done = subprocess.run(
        [str(PROJECT / "dev"), "plan", "--arch", "none"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_modules_of_the_current_folder_are_not_imported(tmp_path: Path) -> None:
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
    assert "planted" not in run_dev(home, folder)  # it installs packages
    assert (made / ".build.sha256").exists()
