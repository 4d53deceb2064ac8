"""README and the pages for owners of a GPU: every command, in order, on a virtual GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.devtools.card_pages import CARDS, IN_DOCS, card_page
from tests.e2e.checkouts import HOME, ROOT
from tests.e2e.dropped_in import attention
from tests.e2e.pages import DOCS, Block, execute, script, tutorial_checkout
from vgpu.hip.build_hip import build_virtual_hip

NAME = "libaotriton_v2.so.0.11.0"
SMALL = "--shape seqlen_q=64,seqlen_k=64,heads_q=1,heads_k=1,batch=1 --repeat 2 --only add,attn_dropout_mask"
"""For the complete check on hardware, which needs minutes on the virtual GPU."""


def small_torch(site: Path) -> Path:
    """torch/lib as far as a drop-in needs it: a library that is linked to AOTriton's by its name."""
    lib = site / "torch" / "lib"
    (lib / "aotriton.images").mkdir(parents=True)
    (lib.parent / "__init__.py").touch()
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+rocm6.4'\n")
    shared = ("gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed")
    for output, flags in ((NAME, (f"-Wl,-soname,{NAME}",)), ("libtorch_hip.so", (str(lib / NAME),))):
        subprocess.run([*shared, *flags, "-o", lib / output], input=b"int nothing;\n", check=True)
    return lib


def readme_commands(arch: str) -> str:
    """The commands of README.md, for an arch."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^\$ (\./dev .*)$", text, re.MULTILINE)).replace("gfx908", arch)


@pytest.mark.parametrize("page", IN_DOCS)
def test_the_pages_are_made_from_their_template(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == card_page(ROOT, page), "run python -m aotforge.devtools.card_pages"
    assert "AOTFORGE_PARTIAL_PACK" not in text


@pytest.mark.compiler
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("page", IN_DOCS)
def test_a_page_leads_from_a_checkout_to_attention_and_back(page: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arch = CARDS[page].arch
    pack = load_architectures(ROOT / "manifests").architectures[arch].pack
    checkout = tutorial_checkout(tmp_path)
    active = tmp_path / "active"
    venv.create(active, with_pip=False, symlinks=True)
    (site,) = active.glob("lib/python3*/site-packages")
    lib = small_torch(site)

    def after(block: Block) -> str:
        """The virtual GPU executes texts; hardware needs none."""
        built = block.body.startswith("./dev build")
        return f"export AOTFORGE_ASM=$(echo $PWD/releases/dist/*-r?/*-asm-{pack}.tar.gz)" if built else ""

    check = f"./dev hardware.check --arch {arch}"
    commands = script(page, after=after).replace(f"{check}\n", f"{check} {SMALL}\n")
    forward, undo, _ = commands.partition("./dev dropin --pytorch-lib auto --undo\n")
    settings = {
        "VIRTUAL_ENV": str(active),
        "LD_LIBRARY_PATH": str(build_virtual_hip(HOME / "cache").folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "AOTFORGE_VIRTUAL": f"devices={arch},log=off",
        "AOTFORGE_CACHE": str(HOME / "cache"),
    }
    printed = execute(f"set -e\n{readme_commands(arch)}", checkout, settings)
    assert "every output is within the bounds of its rounding" in printed
    printed = execute(forward, checkout, settings)
    passed = rf"\d+ images of 0\.11\.2b-r\d on [\w ]+ \({arch}\), HIP 7\.0\.0: \d+ passed;"
    assert len(re.findall(passed, printed)) == 2
    assert len(list(checkout.glob(f"hardware-{arch}-*.html"))) == 1
    assert printed.count("PyTorch will use these images: yes") >= 2  # the dry run's and the drop-in's
    assert "no image has run on a real GPU" in printed  # the drop-in's warning
    assert re.search(
        r"(cpu|cuda), .+: largest error [\d.]+e-\d+, gradient [\d.]+(e\+\d+)?$", printed, re.MULTILINE
    )

    (release,) = (checkout / "releases" / "dist").glob("*-r?")
    (tmp_path / "client").mkdir()
    result, log = attention(lib, NAME, release, pack, arch, tmp_path / "client")
    assert result.passed and {output.name for output in result.outputs} == {"out", "lse", "dq", "dk", "dv"}
    assert str(lib) in log  # the images beside the library that was dropped in

    execute(undo, checkout, settings)
    assert not (lib / ".aotforge-dropin").exists()
