"""The files that are sent to executors are all that a compile worker imports."""

import shutil
import subprocess
import sys
from pathlib import Path

from aotforge.base.source_groups import group_files


def test_a_worker_imports_only_what_is_sent(tmp_path: Path) -> None:
    for name, path in group_files("compile worker").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, tmp_path / name)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import aotforge.compile.remote_worker as it; "
        f"print(it.__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(tmp_path)), done.stderr
