"""The folder of a release's programs: its end changes nothing outside of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from aotforge.sandbox.program_folder import program_folder
from tests.support.other_user import as_other_user


def test_what_a_program_left_is_removed_and_nothing_that_its_links_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11.7 gave mode 700 to what a link in a folder of mode 500 named, and ended at 1,000 nested folders."""

    def check(folder: Path) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        served = folder / "served"
        served.mkdir(mode=0o755)
        (served / "file").touch(0o444)
        with program_folder("aotforge-demo-") as made:
            assert made.stat().st_mode & 0o777 == 0o700
            for name, mode in (("a", 0o500), ("b", 0), ("c", 0o300)):
                (made / name / "inner" / "b").mkdir(parents=True)
                (made / name / "inner" / "file").touch()
                for link, target in (("folder", served), ("file", served / "file"), ("none", "none")):
                    (made / name / link).symlink_to(target)
                (made / name / "inner").chmod(mode)
                (made / name).chmod(mode)
            os.mkfifo(made / "pipe")
            deep = os.open(made, os.O_RDONLY)
            for _ in range(3000):
                os.mkdir("deep", dir_fd=deep)
                deep, above = os.open("deep", os.O_RDONLY, dir_fd=deep), deep
                os.close(above)
            os.close(deep)
        assert [*folder.iterdir()] == [served]
        assert (served.stat().st_mode & 0o777, (served / "file").stat().st_mode & 0o777) == (0o755, 0o444)

    as_other_user(check)
