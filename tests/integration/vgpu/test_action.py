"""The GitHub action of vgpu: its script, run as a runner runs it, and a program of a later step."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from tests.support.families import PROJECT

ACTION = PROJECT / "vgpu" / "action.yml"
COUNT = """
#include <dlfcn.h>
#include <stdio.h>
int main() {
    void *hip = dlopen("libamdhip64.so", RTLD_NOW);
    int (*count)(int *) = hip ? (int (*)(int *))dlsym(hip, "hipGetDeviceCount") : 0;
    int devices = 0;
    if (!count || count(&devices)) return 1;
    printf("%d\\n", devices);
}
"""


def _variables(lines: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines.splitlines())


@pytest.mark.compiler
def test_later_steps_have_virtual_gpus(tmp_path: Path) -> None:
    action = yaml.safe_load(ACTION.read_text())
    (step,) = action["runs"]["steps"]
    given = {name: entry["default"] for name, entry in action["inputs"].items()}
    given |= {"arch": "gfx1030,MI100", "settings": "checks=1"}
    # a fresh environment installs vgpu from its folder, and has numpy and Triton of this one
    environment = tmp_path / "vgpu"
    venv.create(environment, symlinks=True, with_pip=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    files = {name: tmp_path / name for name in ("GITHUB_ENV", "GITHUB_PATH")}
    script = {
        name: text.replace("${{ github.action_path }}", str(ACTION.parent))
        for name, text in step["env"].items()
    }
    script = {
        name: given[text[len("${{ inputs.") : -len(" }}")]] if text.startswith("${{") else text
        for name, text in script.items()
    }
    runner = {
        "RUNNER_TEMP": str(tmp_path),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's name for "without isolation": hatchling is installed here
        "AOTFORGE_CACHE": os.environ.get("AOTFORGE_CACHE", str(tmp_path / "cache")),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        **{name: str(path) for name, path in files.items()},
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env={**runner, **script}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = _variables(files["GITHUB_ENV"].read_text())
    assert made["AOTFORGE_VIRTUAL"] == "devices=gfx1030;gfx908,checks=1"
    commands = files["GITHUB_PATH"].read_text().strip()
    program = tmp_path / "program"
    subprocess.run(["g++", "-x", "c++", "-", "-o", program, "-ldl"], input=COUNT, text=True, check=True)
    later = {**made, "PATH": os.pathsep.join([commands, os.environ["PATH"]])}
    for command, printed in ([str(program)], "2\n"), (["vgpu", "list"], "gfx1030"):
        done = subprocess.run(command, env=later, capture_output=True, text=True, check=False)
        assert printed in done.stdout, done.stderr
