"""The writer: the plan is the contract, and the same input gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace

import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.pack.binary import Source
from aotforge.pack.container import encode_container, read_images, read_index
from aotforge.pack.model import Compressor
from aotforge.pack.reader import open_files
from aotforge.pack.verify_pack import verify_pack
from aotforge.pack.writer import write_pack
from aotforge.plan.model import Plan, PlannedKernel
from tests.unit.pack.samples import image, sample

PLAN, IMAGES = sample()
PACK = write_pack(PLAN, IMAGES, release="0.0-r1")


def with_kernel(plan: Plan, number: int, **changes: object) -> Plan:
    kernels = list(plan.kernels)
    kernels[number] = replace(kernels[number], **changes)  # type: ignore[arg-type]
    return replace(plan, kernels=tuple(kernels))


def without(plan: Plan, kernels: tuple[PlannedKernel, ...]) -> Plan:
    kept = {choice.job for kernel in kernels for f in kernel.functionals for choice in f.choices}
    return replace(plan, kernels=kernels, jobs=tuple(job for job in plan.jobs if job.key in kept))


def write(plan: Plan) -> None:
    keys = {job.key for job in plan.jobs}
    write_pack(plan, [one for one in IMAGES if one.key in keys], release="0.0-r1")


def test_every_choice_finds_the_bytes_of_its_compile_job() -> None:
    opened = open_files(PACK)
    made = {one.key: one for one in IMAGES}
    packed = {(kernel.operator, kernel.step): kernel for kernel in opened.dispatch.kernels}
    seen = 0
    for planned in PLAN.kernels:
        kernel = packed[planned.operator, planned.step]
        for here, there in zip(kernel.functionals, planned.functionals, strict=True):
            assert (here.arch, here.key) == (there.arch, there.key)
            for choice, planned_choice in zip(here.choices, there.choices, strict=True):
                source = made[planned_choice.job]
                digest = opened.indexes[kernel.container].images[choice.image].digest
                assert opened.images(kernel.container)[digest] == source.binary
                assert (choice.symbol, choice.threads, choice.dynamic_shared_bytes) == (
                    source.symbol,
                    256,
                    1024,
                )
                assert choice.predicates == planned_choice.predicates
                seen += 1
    assert seen == len(IMAGES)
    verify_pack(opened, PLAN, IMAGES)


def test_signature_records_the_inputs() -> None:
    text = PACK.files["__signature__"]
    signature = json.loads(text)
    assert signature["operators"] == {operator.name: operator.interface_hash() for operator in PLAN.operators}
    assert signature["images"] == len(IMAGES)
    assert signature["dispatch"] == hashlib.sha256(PACK.files["dispatch.aotd"]).hexdigest()
    assert text.endswith(b"}\n")
    assert list(signature) == sorted(signature)
    assert sorted(PACK.files) == [
        "__signature__", "demo.copy.aoti", "demo.first.aoti", "demo.second.aoti", "dispatch.aotd",
    ]  # fmt: skip


def test_order_of_images_does_not_matter() -> None:
    shuffled = list(IMAGES)
    random.Random(7).shuffle(shuffled)
    assert dict(write_pack(PLAN, shuffled, release="0.0-r1").files) == dict(PACK.files)


def test_equal_images_are_stored_once() -> None:
    same = [replace(one, binary=IMAGES[0].binary, digest=IMAGES[0].digest) for one in IMAGES]
    opened = open_files(write_pack(PLAN, same, release="0.0-r1"))
    assert [len(index.images) for index in opened.indexes.values()] == [1, 1, 1]
    verify_pack(opened, PLAN, same)


def test_a_container_holds_images_of_one_byte_to_64_mib() -> None:
    source = Source("c", encode_container([b"x", b"y"], Compressor(), file="c"))
    assert sorted(read_images(source, read_index(source)).values()) == [b"x", b"y"]
    for images, reason in (([], "0 images"), ([b""], "0 bytes"), ([bytes((64 << 20) + 1)], "67108865 bytes")):
        with pytest.raises(PackError, match=f"c: .*{reason}, the format holds 1 to "):
            encode_container(images, Compressor(), file="c")


def test_images_that_are_alike_share_a_dictionary() -> None:
    alone = write_pack(PLAN, IMAGES, release="0.0-r1", compressor=Compressor(dictionary_bytes=0))
    assert sum(map(len, PACK.files.values())) < 0.5 * sum(map(len, alone.files.values()))
    verify_pack(open_files(alone), PLAN, IMAGES)


def test_missing_image_is_refused_by_name() -> None:
    with pytest.raises(PackError, match=r"1 of 28 images are missing.*first/gfx908"):
        write_pack(PLAN, [one for one in IMAGES if one.key != PLAN.jobs[8].key], release="0.0-r1")


def test_image_that_is_not_planned_is_not_packed() -> None:
    stray = image(replace(PLAN.jobs[0], key="f" * 64), PLAN.kernels[0].parameters)
    assert write_pack(PLAN, [*IMAGES, stray], release="0.0-r1") == PACK


def test_image_that_differs_from_its_digest_is_refused() -> None:
    with pytest.raises(PackError, match="does not match its SHA-256"):
        write_pack(PLAN, [replace(IMAGES[0], binary=b"other"), *IMAGES[1:]], release="0.0-r1")


@pytest.mark.parametrize(
    ("kept", "reason"), [((0, 2), None), ((1, 2), "operator blend"), ((0, 1), "operator copy")]
)
def test_operator_without_one_of_its_steps_is_refused(kept: tuple[int, ...], reason: str | None) -> None:
    plan = without(PLAN, tuple(PLAN.kernels[i] for i in kept))
    if reason is None:  # a plan in which the operator has one step only is complete
        write(plan)
        return
    with pytest.raises(PackError, match=f"{reason} does not have kernels for steps"):
        write(plan)


def test_step_that_serves_fewer_calls_than_the_others_is_refused() -> None:
    plan = with_kernel(PLAN, 1, functionals=PLAN.kernels[1].functionals[:-1])
    with pytest.raises(
        PackError, match=r"second, step 1 of blend, has no image for gfx908, dtype = 3, mode = 0"
    ):
        write(without(plan, plan.kernels))


def test_kernel_arguments_that_differ_from_the_plan_are_refused() -> None:
    parameters = PLAN.kernels[0].parameters
    plan = with_kernel(PLAN, 0, parameters=(parameters[1], parameters[0], *parameters[2:]))
    with pytest.raises(PackError, match=r"argument 0 is global_buffer, 8 bytes at 0;"):
        write(plan)
    with pytest.raises(PackError, match="takes 6 arguments, the plan passes 7"):
        write(with_kernel(PLAN, 0, parameters=(*parameters, *parameters[:1] * 3)))


def test_bounds_of_a_choice_are_the_formats() -> None:
    def with_resources(**changes: int) -> list[KernelImage]:
        return [replace(one, resources=replace(one.resources, **changes)) for one in IMAGES]

    table = open_files(write_pack(PLAN, with_resources(dynamic_shared_bytes=0, threads=1), release="0.0-r1"))
    first = table.dispatch.kernels[0].functionals[0].choices[0]
    assert (first.dynamic_shared_bytes, first.threads) == (0, 1)
    for changes, what in (({"dynamic_shared_bytes": -1}, "shared memory of"), ({"threads": 0}, "threads")):
        with pytest.raises(PackError, match=what):
            write_pack(PLAN, with_resources(**changes), release="0.0-r1")


def test_names_that_make_no_file_name_are_refused() -> None:
    with pytest.raises(PackError, match="cannot be a container's file name"):
        write(with_kernel(PLAN, 0, name="näme"))
    with pytest.raises(PackError, match="cannot be a container's file name"):
        write(with_kernel(PLAN, 0, family=".hidden"))


def test_value_that_the_operator_does_not_have_is_refused() -> None:
    with pytest.raises(PackError, match="is not a value of operator blend"):
        write(with_kernel(PLAN, 0, keys=("dtype", "nonesuch")))
