"""The pages for owners of a GPU (docs/mi100.md, gfx906.md, gfx103x.md), from one template.

`python -m tests.e2e.owner_pages` writes them again after a change; a test compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from aotforge.base.files import write_atomic
from tests.e2e.checkouts import ROOT

TEMPLATE = ROOT / "tests" / "fixtures" / "owner_page.md.in"
PROGRAM = ROOT / "docker" / "attention.py"


@dataclass(frozen=True, kw_only=True)
class OwnerPage:
    """What differs. `owners` ends "it is for owners of", `gpu` "no image has run on a real"."""

    arch: str
    title: str
    owners: str
    gpu: str
    notes: tuple[str, ...]


PAGES: Mapping[str, OwnerPage] = {
    "mi100.md": OwnerPage(
        arch="gfx908",
        title="MI100",
        owners="an AMD Instinct MI100 (gfx908)",
        gpu="MI100",
        notes=("bf16 on MI100 has half of fp16's matrix rate, by AMD's data sheet.",),
    ),
    "gfx906.md": OwnerPage(
        arch="gfx906",
        title="MI50, MI60 and Radeon VII",
        owners="an AMD Radeon Instinct MI50 or MI60, a Radeon VII or a Radeon Pro VII (gfx906)",
        gpu="gfx906",
        notes=("gfx906 has no matrix instructions: products are computed by dot and vector instructions.",),
    ),
    "gfx103x.md": OwnerPage(
        arch="gfx1030",
        title="Radeon RX 6000",
        owners="a Radeon RX 6400 to 6950 XT, a Radeon PRO W6600, W6800 or V620 (RDNA 2, gfx103x)",
        gpu="RDNA 2 GPU",
        notes=(
            "RDNA 2 has no matrix instructions: products are computed by dot and vector instructions.",
            "The commands name gfx1030 (RX 6800 to 6950 XT).\n"
            '  For another GPU, `--arch` takes its product as well, `--arch "RX 6600"`, and `native`.',
            "Where PyTorch has its other kernels for gfx1030 alone, `HSA_OVERRIDE_GFX_VERSION=10.3.0` makes "
            "another\n  GPU of RDNA 2 report gfx1030, and the images of gfx1030 serve it.",
        ),
    ),
}
"""By file name in docs/."""


def owner_page(name: str) -> str:
    """The text of a page."""
    facts = PAGES[name]
    notes = "\n".join(f"- {note}" for note in facts.notes)
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(vars(facts) | {"notes": notes, "program": PROGRAM.read_text(encoding="utf-8")})


if __name__ == "__main__":
    for name in PAGES:
        write_atomic(ROOT / "docs" / name, owner_page(name).encode())
