"""Pages for owners of a card, from one template, and the first page, with commands by card.

`python -m aotforge.devtools.card_pages` writes those that docs/ has, for readers of the repository; the site
has one for every family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.base.html import render
from aotforge.conformance.matrix import load_matrix

PROGRAM = "docker/attention.py"


@dataclass(frozen=True, kw_only=True)
class Card:
    """A family of cards. `owners` ends "it is for owners of", `gpu` "no image has run on a real".

    `label` is short, for the first page. `arch` is the one that the commands name, of products `others`;
    `example` is a product of another arch.
    """

    arch: str
    label: str
    title: str
    owners: str
    gpu: str
    others: str = ""
    example: str = ""
    notes: tuple[str, ...] = ()


_DOTS = "has no matrix instructions: products are computed by dot and vector instructions."
CARDS: Mapping[str, Card] = {
    "gfx906.md": Card(
        arch="gfx906",
        label="MI50, MI60, VII",
        title="MI50, MI60 and Radeon VII",
        owners="an AMD Radeon Instinct MI50 or MI60, a Radeon VII or a Radeon Pro VII (gfx906)",
        gpu="gfx906",
        notes=(f"gfx906 {_DOTS}",),
    ),
    "mi100.md": Card(
        arch="gfx908",
        label="MI100",
        title="MI100",
        owners="an AMD Instinct MI100 (gfx908)",
        gpu="MI100",
        notes=("bf16 on MI100 has half of fp16's matrix rate, by AMD's data sheet.",),
    ),
    "gfx103x.md": Card(
        arch="gfx1030",
        label="RX 6000",
        title="Radeon RX 6000",
        owners="a Radeon RX 6400 to 6950 XT, a Radeon PRO W6600, W6800 or V620 (RDNA 2, gfx103x)",
        gpu="RDNA 2 GPU",
        others="RX 6800 to 6950 XT",
        example="RX 6600",
        notes=(
            f"RDNA 2 {_DOTS}",
            "Where PyTorch has its other kernels for gfx1030 alone, `HSA_OVERRIDE_GFX_VERSION=10.3.0` makes "
            "another\n  GPU of RDNA 2 report gfx1030, and the images of gfx1030 serve it.",
        ),
    ),
    "gfx110x.md": Card(
        arch="gfx1100",
        label="RX 7000",
        title="Radeon RX 7000",
        owners="a Radeon RX 7600 to 7900 XTX, a Radeon PRO W7500 to W7900 or V710, or graphics 740M to 780M "
        "(RDNA 3, gfx110x)",
        gpu="RDNA 3 GPU",
        others="RX 7900",
        example="RX 7600",
    ),
    "gfx115x.md": Card(
        arch="gfx1151",
        label="Ryzen AI",
        title="Ryzen AI graphics",
        owners="graphics Radeon 840M to 890M, 8050S or 8060S of a Ryzen AI (RDNA 3.5, gfx115x)",
        gpu="RDNA 3.5 GPU",
        others="8060S",
        example="Radeon 890M",
    ),
    "gfx120x.md": Card(
        arch="gfx1201",
        label="RX 9000",
        title="Radeon RX 9000",
        owners="a Radeon RX 9060 to 9070 XT or a Radeon AI PRO R9700 (RDNA 4, gfx120x)",
        gpu="RDNA 4 GPU",
        others="RX 9070",
        example="RX 9060 XT",
    ),
    "mi200.md": Card(
        arch="gfx90a",
        label="MI200",
        title="MI200 series",
        owners="an AMD Instinct MI210, MI250 or MI250X (gfx90a)",
        gpu="MI200",
    ),
    "mi300.md": Card(
        arch="gfx942",
        label="MI300",
        title="MI300 series",
        owners="an AMD Instinct MI300A, MI300X or MI325X (gfx942)",
        gpu="MI300",
    ),
    "mi350.md": Card(
        arch="gfx950",
        label="MI350",
        title="MI350 series",
        owners="an AMD Instinct MI350X or MI355X (gfx950)",
        gpu="MI350",
    ),
}
"""By file name on the site, the archs without official images first."""

IN_DOCS = ("gfx906.md", "mi100.md", "gfx103x.md")
"""Pages that docs/ has as well, of the archs for which there are no official images."""


def card_page(root: Path, name: str) -> str:
    """The text of a page."""
    card = CARDS[name]
    notes = [_named(card, "\n  ")] if card.others else []
    program = (root / PROGRAM).read_text(encoding="utf-8")
    values = vars(card) | {"notes": (*notes, *card.notes), "official": _is_official(root, card)}
    return render("card_page.md.jinja", program=program, **values) + "\n"


def first_page(root: Path) -> str:
    """The site's first page."""
    cards = [(name, card, _is_official(root, card), _named(card, " ")) for name, card in CARDS.items()]
    return render("first_page.md.jinja", cards=cards) + "\n"


def _named(card: Card, space: str) -> str:
    """Which products the commands are for, and what to enter for another."""
    first = f"The commands name {card.arch} ({card.others})."
    other = f'For another GPU, `--arch` takes its product as well, `--arch "{card.example}"`, and `native`.'
    return f"{first}{space}{other}"


def _is_official(root: Path, card: Card) -> bool:
    """Whether AOTriton's own releases have images for the arch."""
    return load_matrix(root).matrix.official_archs[card.arch] != "never"


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    for page in IN_DOCS:
        write_atomic(here / "docs" / page, card_page(here, page).encode())
