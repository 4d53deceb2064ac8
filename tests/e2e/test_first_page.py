"""The site's first page: three commands for a card lead to flash attention in PyTorch, on a virtual GPU."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.devtools.card_pages import CARDS, IN_DOCS, first_page
from tests.e2e.checkouts import HOME, ROOT
from tests.e2e.pages import execute, tutorial_checkout
from tests.support.releases import build_small
from tests.support.virtual_torch import virtual_environment
from vgpu.hip.build_hip import build_virtual_hip


def commands(label: str) -> list[str]:
    tab = first_page(ROOT).partition(f'=== "{label}"\n')[2].partition("```sh\n")[2].partition("```")[0]
    return [line.strip() for line in tab.splitlines() if line.strip()]


@pytest.mark.slow  # a build for each card, and PyTorch copied
@pytest.mark.compiler
@pytest.mark.torch
@pytest.mark.parametrize("name", IN_DOCS)
def test_three_commands_lead_to_attention(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    card = CARDS[name]
    virtual = build_virtual_hip(HOME / "cache")
    active = virtual_environment(tmp_path, build_small(tmp_path / "headers"), virtual)
    build, drop_in, program = commands(card.label)
    pack = load_architectures(ROOT / "manifests").architectures[card.arch].pack
    texts = f"export AOTFORGE_ASM=$(echo $PWD/releases/dist/*-r?/*-asm-{pack}.tar.gz)"  # hardware needs none
    settings = {
        "VIRTUAL_ENV": str(active),
        "PATH": os.pathsep.join([str(active / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(virtual.folder),
        "AOTFORGE_VIRTUAL": f"devices={card.arch},log=off",
        "AOTFORGE_CACHE": str(HOME / "cache"),
    }
    script = "\n".join(("set -e", build, texts, drop_in, program))
    printed = execute(script, tutorial_checkout(tmp_path), settings)
    assert printed.count("PyTorch will use these images: yes") == 2
    assert re.search(rf"^cuda, virtual {card.arch} \(.+\): largest error [\d.]+e-0\d", printed, re.MULTILINE)
