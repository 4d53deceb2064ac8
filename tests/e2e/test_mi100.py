"""docs/mi100.md: every command of the page, in order, in a copy of the checkout, on a virtual MI100 and a small torch/lib."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.flags import parse_flags
from aotforge.cli.program import find_task
from aotforge.virtual_gpu.hip.build_hip import build_virtual_hip
from tests.e2e.checkouts import HOME, ROOT, copy_checkout, shrink_smoke

PAGE = ROOT / "docs" / "mi100.md"
SMALL = "--shape seqlen_q=64,seqlen_k=64,heads_q=1,heads_k=1,batch=1 --repeat 2"
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL
)


def blocks() -> list[tuple[str, str]]:
    """A file with its text, or '' with commands."""
    return [(one["file"] or "", one["body"]) for one in _BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def test_every_command_of_the_page_is_a_valid_one() -> None:
    lines = [line for file, body in blocks() if not file for line in body.splitlines()]
    words = [shlex.split(line) for line in lines if line.startswith("./dev ")]
    assert len(words) >= 7
    for _, name, *flags in words:
        parse_flags(find_task(name), flags)
    assert "docs/mi100.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def small_torch(site: Path) -> None:
    """What a drop-in needs of a wheel: a library that is linked to AOTriton's by its name."""
    lib = site / "torch" / "lib"
    (lib / "aotriton.images").mkdir(parents=True)
    (lib.parent / "__init__.py").touch()
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+rocm6.4'\n")
    name = "libaotriton_v2.so.0.11.0"
    shared = ("gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed")
    for output, flags in ((name, (f"-Wl,-soname,{name}",)), ("libtorch_hip.so", (str(lib / name),))):
        subprocess.run([*shared, *flags, "-o", lib / output], input=b"int nothing;\n", check=True)


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.torch
def test_the_page_leads_from_a_checkout_to_a_drop_in_and_back(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout)
    profiles = checkout / "manifests" / "profiles.yaml"
    text = profiles.read_text().replace("default: core", "default: smoke")
    head, name, rest = text.partition("  smoke:")
    profiles.write_text(head + name + rest.replace("complete: false", "complete: true", 1))
    # the environment that runs the tests, and its cache
    (checkout / "dev").write_text(f'#!/bin/sh\nexec {sys.executable} tasks.py "$@"\n')
    active = tmp_path / "active"
    venv.create(active, with_pip=False, symlinks=True)
    (site,) = active.glob("lib/python3*/site-packages")
    small_torch(site)
    parts = ["set -euo pipefail"]
    for file, body in blocks():
        parts.append(f"cat > {file} <<'END_OF_LISTING'\n{body}END_OF_LISTING" if file else body)
        if body.startswith("./dev build"):  # the virtual GPU executes texts; hardware needs none
            parts.append("export AOTFORGE_ASM=$(echo $PWD/releases/dist/*/*-asm-amd-gfx908.tar.gz)")
    # the complete check on a small call: the virtual GPU is slower than an MI100
    check = "./dev hardware.check --arch gfx908"
    script = "\n".join(parts).replace(f"{check}\n", f"{check} {SMALL}\n")
    hip = build_virtual_hip(HOME / "cache")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_"))}
    environment |= {
        "AOTFORGE_HOME": str(HOME),
        "VIRTUAL_ENV": str(active),
        "LD_LIBRARY_PATH": str(hip.folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AOTFORGE_VIRTUAL_DEVICES": "gfx908",
        "AOTFORGE_VIRTUAL_LOG": "off",
        "AOTFORGE_CACHE": str(HOME / "cache"),
    }
    done = subprocess.run(
        ["bash", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    passed = r"\d+ images of 0\.11\.2b-r\d on AMD Instinct MI100 \(gfx908\), HIP 7\.0\.0: \d+ passed;"
    assert len(re.findall(passed, done.stdout)) == 2
    assert len(list(checkout.glob("hardware-gfx908-*.html"))) == 1
    assert re.search(r"(cpu|cuda): largest error [\d.]+e-\d+, gradient", done.stdout)
    assert "no image has run on a real GPU" in done.stdout  # the drop-in's warning
    assert not (site / "torch" / "lib" / ".aotforge-dropin").exists()
