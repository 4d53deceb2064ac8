"""`COVERAGE.md`: size, served calls and bytes of the first call of each pack; no times."""

from collections.abc import Iterable, Iterator, Sequence

from aotforge.pack.coverage import PackCoverage, pack_coverage
from aotforge.pack.model import ImagePack
from aotforge.pack.reader import open_files

_HEAD = """\
# Coverage of release {release}

Every build of the release gives the same bytes of this document.
`./dev coverage RELEASE --calls LOG` compares a program's calls with the release.

## Packs

The first call of a process reads the dispatch data of its pack, whatever it calls.
Where a gate of PyTorch is not served, `check_gpu` fails without `AOTFORGE_PARTIAL_PACK=1`.
"""
_SERVED = """
## Calls served

Values of each key that have special images.
Of a kernel that lacks some combinations their number is given.
General images serve every other call of their values, up to their width; \
`./dev coverage` shows what that costs.
"""
_FIRST = """
## First call

Bytes of the largest image of each kernel: what a first call reads, decodes and verifies, \
and what the driver loads.
`python -m benchmarks.runtime_dispatch --release FOLDER` measures the time, which depends on the machine.
"""


def coverage_document(release: str, packs: Iterable[ImagePack]) -> bytes:
    """The document; equal packs give equal bytes. Raises PackError."""
    tables = [pack_coverage(open_files(pack)) for pack in packs]
    lines = [
        _HEAD.format(release=release),
        *_table(["pack", "archs", "images", "bytes", "dispatch data", "gates"], map(_pack, tables)),
        _SERVED,
        *_table(
            ["kernel", "arch", "served"], ([k.kernel, k.arch, k.text()] for t in tables for k in t.kernels)
        ),
        _FIRST,
        *_table(["kernel", "arch", "read", "decoded", "image"], _first_calls(tables)),
    ]
    return ("\n".join(lines) + "\n").encode()


def _pack(table: PackCoverage) -> list[str]:
    gates = ", ".join(table.gates) or "none"
    return [
        table.pack,
        " ".join(table.archs),
        str(table.images),
        f"{table.bytes:,}",
        f"{table.first_bytes:,}",
        gates,
    ]


def _first_calls(tables: Sequence[PackCoverage]) -> Iterator[list[str]]:
    for kernel in (kernel for table in tables for kernel in table.kernels):
        first = kernel.first_call
        yield [kernel.kernel, kernel.arch, *(f"{n:,}" for n in (first.read, first.decoded, first.image))]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)
