"""A new user's first commands: `./dev` sets itself up, and after that needs no network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, build_json, copy_checkout, environment, shrink_smoke, tarballs

pytestmark = pytest.mark.compiler

BUILD = ("build", "--arch", "gfx908", "--profile", "smoke", "--json")
SURROUNDINGS = {"PYTHONHASHSEED": "4242", "LC_ALL": "C", "TZ": "Asia/Kolkata", "TRITON_DEBUG": "1"}
"""Settings that must not reach any output."""


def dev(checkout: Path, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`./dev` as from a shell that knows no environment of ours."""
    clean = environment(checkout)
    clean["PATH"] = os.pathsep.join(
        part for part in clean["PATH"].split(os.pathsep) if ".aotforge" not in part and "venv" not in part
    )
    clean.pop("PYTHONPATH", None)
    clean.pop("VIRTUAL_ENV", None)
    return subprocess.run(
        [*before, str(checkout / "dev"), *arguments],
        cwd=checkout.parent,
        env=clean | SURROUNDINGS,
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )


def cut_off() -> tuple[str, ...]:
    """A command prefix that takes the network away, or a skip where this machine does not let us."""
    for prefix in (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net")):
        if (
            shutil.which("unshare")
            and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
        ):
            return prefix
    pytest.skip("unshare cannot take the network away here")


def test_the_first_run_sets_up_and_later_ones_need_no_network(tmp_path: Path) -> None:
    """Its release is another checkout's, bit for bit: they share the sources and nothing else."""
    checkout, other = (copy_checkout(tmp_path / name) for name in ("a new földer", "other"))
    for copy in (checkout, other):
        shrink_smoke(copy)
    # what Ctrl-C leaves of an environment in the making is made anew
    broken = checkout / ".aotforge" / "venv-{}.{}".format(*sys.version_info[:2]) / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    first = dev(checkout, *BUILD, "--jobs", "1")
    assert first.returncode == 0, first.stderr
    made = json.loads(first.stdout)
    assert (made["fresh"], made["compiled"]) == (True, made["images"])
    assert (made["verified"], made["executed"]) == (True, made["images"])
    there = Path(build_json(other, "--profile", "smoke", "--cache", str(HOME / "cache"))["folder"])
    for name, digest in tarballs(made).items():
        for release in (there, Path(made["folder"])):
            assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest, (release, name)
    assert {path.name for path in there.iterdir()} == set(tarballs(made))
    summed = {line.split("  ")[1] for line in (there / "SHA256SUMS").read_text().splitlines()}
    assert summed == set(tarballs(made)) - {"SHA256SUMS"}
    prefix = cut_off()
    again = dev(checkout, *BUILD, before=prefix)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["fresh"] is False
    kernel = checkout / "kernels" / "add" / "add.py"
    kernel.write_text(kernel.read_text() + "\n# a comment compiles nothing again\n")
    elsewhere = dev(checkout, *BUILD, "--output", str(tmp_path / "out"), before=prefix)
    assert elsewhere.returncode == 0, elsewhere.stderr
    report = json.loads(elsewhere.stdout)
    assert (report["compiled"], report["cached"]) == (0, made["images"])
    assert report["verified"]
    assert report["files"] == made["files"]
    kernel.write_text(kernel.read_text().replace("(left + right)", "(right + left)"))
    edited = dev(checkout, *BUILD, "--output", str(tmp_path / "out"), before=prefix)
    assert edited.returncode == 0, edited.stderr
    assert json.loads(edited.stdout)["compiled"] == 2  # `add`, hinted and not; nothing of attention


def test_an_unsupported_python_is_named(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    done = subprocess.run(
        [str(checkout / "dev"), "plan"],
        env=environment(checkout) | {"AOTFORGE_PYTHON": "/no/such/python2.7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "AOTFORGE_PYTHON=/no/such/python2.7 is not a Python 3.11 to 3.15" in done.stderr
    assert "No such file" in done.stderr
    assert "apt-get install" in done.stderr
