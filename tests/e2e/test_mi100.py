"""docs/mi100.md: every command of the page, in order, in a copy of the checkout, on a virtual MI100 and a small torch/lib."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from aotforge.virtual_gpu.hip.build_hip import build_virtual_hip
from tests.e2e.checkouts import HOME, shrink_smoke
from tests.e2e.pages import Block, execute, script, tutorial_checkout

SMALL = "--shape seqlen_q=64,seqlen_k=64,heads_q=1,heads_k=1,batch=1 --repeat 2"


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
    checkout = tutorial_checkout(tmp_path)
    shrink_smoke(checkout)
    profiles = checkout / "manifests" / "profiles.yaml"
    text = profiles.read_text().replace("default: core", "default: smoke")
    head, name, rest = text.partition("  smoke:")
    profiles.write_text(head + name + rest.replace("complete: false", "complete: true", 1))
    active = tmp_path / "active"
    venv.create(active, with_pip=False, symlinks=True)
    (site,) = active.glob("lib/python3*/site-packages")
    small_torch(site)

    def after(block: Block) -> str:
        """The virtual GPU executes texts; hardware needs none."""
        built = block.body.startswith("./dev build")
        return "export AOTFORGE_ASM=$(echo $PWD/releases/dist/*/*-asm-amd-gfx908.tar.gz)" if built else ""

    # the complete check on a small call: the virtual GPU is slower than an MI100
    check = "./dev hardware.check --arch gfx908"
    commands = script("mi100.md", after=after).replace(f"{check}\n", f"{check} {SMALL}\n")
    hip = build_virtual_hip(HOME / "cache")
    printed = execute(
        commands,
        checkout,
        {
            "VIRTUAL_ENV": str(active),
            "LD_LIBRARY_PATH": str(hip.folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "AOTFORGE_VIRTUAL_DEVICES": "gfx908",
            "AOTFORGE_VIRTUAL_LOG": "off",
            "AOTFORGE_CACHE": str(HOME / "cache"),
        },
    )
    passed = r"\d+ images of 0\.11\.2b-r\d on AMD Instinct MI100 \(gfx908\), HIP 7\.0\.0: \d+ passed;"
    assert len(re.findall(passed, printed)) == 2
    assert len(list(checkout.glob("hardware-gfx908-*.html"))) == 1
    assert re.search(r"(cpu|cuda): largest error [\d.]+e-\d+, gradient", printed)
    assert "no image has run on a real GPU" in printed  # the drop-in's warning
    assert not (site / "torch" / "lib" / ".aotforge-dropin").exists()
