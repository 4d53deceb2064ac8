"""The writer and reader compared with an independent writer, made from the format's document alone."""

from __future__ import annotations

from dataclasses import replace

from aotforge.pack.binary import Source
from aotforge.pack.container import read_images, read_index
from aotforge.pack.dispatch import decode_dispatch, encode_dispatch
from aotforge.pack.reader import open_files
from aotforge.pack.writer import write_pack
from tests.support import small_pack
from tests.unit.pack.samples import sample

PLAN, IMAGES = sample()
KINDS = {"multiple": 0, "range": 1}


def peer_files(dictionary: bytes) -> dict[str, bytes]:
    """The sample plan as the other writer packs it."""
    made = {image.key: image for image in IMAGES}
    kernels = [
        small_pack.Kernel(
            name=f"{kernel.family}.{kernel.name}",
            operator=kernel.operator,
            step=kernel.step,
            keys=kernel.keys,
            parameters=[(parameter.type, parameter.value) for parameter in kernel.parameters],
            nulls=2,
            functionals={
                (functional.arch, functional.key): [
                    small_pack.Choice(
                        image=made[choice.job].binary,
                        symbol=made[choice.job].symbol,
                        threads=256,
                        lds=1024,
                        predicates=[(KINDS[p.kind], p.values, p.low, p.high) for p in choice.predicates],
                        grid=[
                            [(t.value, t.divisor) for t in axis] for axis in (*choice.grid, (), (), ())[:3]
                        ],
                    )
                    for choice in functional.choices
                ]
                for functional in kernel.functionals
            },
        )
        for kernel in PLAN.kernels
    ]
    operators = {operator.name: [(v.name, v.type) for v in operator.values] for operator in PLAN.operators}
    packed = small_pack.SmallPack(
        archs=PLAN.archs, operators=operators, kernels=kernels, dictionary=dictionary
    )
    return small_pack.files(packed)


def test_both_writers_give_equal_bytes() -> None:
    ours = open_files(write_pack(PLAN, IMAGES, release="0.0-r1"))
    for dictionary in (b"", IMAGES[0].binary):
        theirs = peer_files(dictionary)
        table = decode_dispatch(theirs["dispatch.aotd"], file="peer")
        assert encode_dispatch(table, file="peer") == theirs["dispatch.aotd"]
        assert table.containers
        # container IDs differ, as the dictionaries do
        assert replace(table, containers=()) == replace(ours.dispatch, containers=())
        for container in table.containers:
            source = Source(container.file, theirs[container.file])
            index = read_index(source)
            assert index.identity == container.identity
            assert read_images(source, index) == ours.images(container.file)
