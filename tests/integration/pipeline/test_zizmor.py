"""The committed workflows have no finding of zizmor, and faults in them are found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.families import PROJECT

TEXT = (PROJECT / ".github" / "workflows" / "build.yml").read_text()
pytestmark = pytest.mark.skipif(shutil.which("zizmor") is None, reason="needs zizmor")


def zizmor(path: Path) -> subprocess.CompletedProcess[str]:
    command = ["zizmor", "--offline", "--no-progress", "--color=never", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_committed_workflows_have_no_finding() -> None:
    assert zizmor(PROJECT / ".github" / "workflows").returncode == 0


FAULTS = [
    ("contents: read", "contents: write", "excessive-permissions"),
    ("@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "@v6", "unpinned-uses"),
    ("pull_request:", "pull_request_target:", "dangerous-triggers"),
    ('--arch "$ARCH"', '--arch "${{ github.event.pull_request.title }}"', "template-injection"),
    ("        with:\n          persist-credentials: false\n", "", "artipacked"),
]


@pytest.mark.parametrize(("right", "wrong", "audit"), FAULTS)
def test_a_fault_is_found(tmp_path: Path, right: str, wrong: str, audit: str) -> None:
    path = tmp_path / ".github" / "workflows" / "build.yml"
    path.parent.mkdir(parents=True)
    assert right in TEXT
    path.write_text(TEXT.replace(right, wrong, 1))
    done = zizmor(path)
    assert done.returncode != 0 and audit in done.stdout, done
