"""Checks, merging and forms of the operator library, by the launches that HIP's double records for images
without code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aotforge.library.build_linux import OPERATOR_LIBRARY, build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.rules import Operator
from kernels.elementwise.operators import ADD_DENSE, ADD_STRIDED, ADD_TILES
from kernels.gemm.operators import GEMM_NN, GEMM_NT, GEMM_STRIDED
from kernels.rms_norm.rules import RMS_NORM_ROWS
from tests.support.fake_cubin import fake_cubin
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.runtime import CACHE, ROOT, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, write

INVALID_VALUE, INVALID_DEVICE, NO_BINARY, NOT_FOUND, NO_DRIVER, NOT_SUPPORTED = 1, 101, 209, 301, 303, 801
FP32 = 1


_GRIDS = {
    "add_dense": [("n", 1024)],
    "add_tiles": [("size_0", 1024), ("size_1", 1), ("size_2", 1), ("size_3", 1)],
    "add_strided": [("n", 512)],
    "rms_norm_rows": [("n", 1)],
    **{name: [("rows", 64), ("columns", 64), ("n", 1)] for name in ("gemm_nn", "gemm_nt", "gemm_strided")},
}


def pack_of(operators: Sequence[Operator], arch: str, image: bytes = b"") -> SmallPack:
    """The operators' float32 kernels, whose parameters are all values."""
    kernels, described = [], {}
    for operator in sorted(operators, key=lambda one: one.name):
        values = [(value.name, value.type) for value in operator.values]
        described[operator.name] = values
        types = [type_ for _, type_ in values]
        made = image or fake_hsaco(arch, [FakeKernel(symbol=operator.name, types=types)])
        choice = Choice(image=made, symbol=operator.name, grid=(_GRIDS[operator.name], (), ()))
        kernel = Kernel(
            name=f"e.{operator.name}",
            operator=operator.name,
            keys=("dtype",),
            parameters=[(type_, name) for name, type_ in values],
            functionals={(arch, (FP32,)): [choice]},
        )
        kernels.append(kernel)
    return SmallPack(archs=[arch], operators=described, kernels=kernels)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    operators = [ADD_DENSE, ADD_STRIDED, ADD_TILES, RMS_NORM_ROWS, GEMM_NN, GEMM_NT, GEMM_STRIDED]
    write(pack_of(operators, "gfx908"), folder / "amd-gfx908")
    return folder


@pytest.fixture(scope="module")
def library() -> Path:
    prefix = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix
    return prefix / "lib" / OPERATOR_LIBRARY


def run(library: Path, objects: Objects, images: Path, script: str, **environment: str) -> Any:
    """The answers of a program that executes `script` (tests/support/operator_calls.py)."""
    settings = {name: value for name, value in os.environ.items() if "DOUBLE" not in name}
    own = {
        "AOTRITON_IMAGES_DIR": str(images),
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": str(objects.hip(7)),
    }
    settings |= own | environment
    command = [sys.executable, "-m", "tests.support.operator_calls", str(library), script]
    done = subprocess.run(
        command, env=settings, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


_FORMS = """
for described in (
    (((5, 7), None), ((5, 7), None), ((5, 7), None)),
    (((5, 7), (1, 5)), ((5, 7), (1, 5)), ((5, 7), (1, 5))),
    (((), None), ((), None), ((), None)),
    (((1, 1, 9), (7, 3, 1)), ((9,), None), ((1, 1, 9), None)),
    (((16, 64), (100, 1)), ((64,), None), ((16, 64), None)),
    (((16, 63), (100, 1)), ((63,), None), ((16, 63), None)),
    (((70, 15), (100, 1)), ((15,), None), ((70, 15), None)),
    (((16, 64), (100, 2)), ((16, 1), None), ((16, 64), None)),
    (((3, 16, 64), (2048, 64, 1)), ((3, 1, 64), None), ((3, 16, 64), None)),
    (((2, 16, 2, 64), (2048, 1, 1024, 16)), ((2, 1, 2, 64), None), ((2, 16, 2, 64), None)),
    (((1030,), (2,)), ((1,), None), ((1030,), None)),
    (((2, 3, 2, 3, 64), (6, 64, 7, 8, 1)), ((2, 1, 2, 1, 64), None), ((2, 3, 2, 3, 64), None)),
    (((6, 4), (-4, 1)), ((6, 4), (-4, 1)), ((6, 4), (-4, 1))),
    (((7, 0), None), ((1, 0), None), ((7, 0), None)),
):
    code, text, launches = recorder.add(*tensors(*described))
    answers.append([code, text, [one["operator"] for one in launches], is_right(tensors(*described),
        launches)])
"""


def test_the_first_form_that_serves_a_call_computes_it(library: Path, objects: Objects, images: Path) -> None:
    dense, tiles, strided = ([f"add_{name}"] for name in ("dense", "tiles", "strided"))
    forms = [dense] * 4 + [tiles, strided, strided] + [tiles] * 4 + [strided, dense, []]
    assert run(library, objects, images, _FORMS) == [[0, "", form, True] for form in forms]


_RANDOM = """
import random
draw = random.Random(7)
for _ in range(200):
    shape = [draw.choice((1, 2, 3)) for _ in range(draw.randint(0, 5))]
    if draw.random() < 0.3: shape = [*shape[:1], 16, 64]
    layouts = []
    for address in ADDRESSES:
        out = address == ADDRESSES[2]
        own = list(shape)
        if not out: own = [1 if draw.random() < 0.3 else size for size in own][draw.randint(0, len(own)) if
            draw.random() < 0.3 else 0 :]
        order = list(range(len(own)))
        if draw.random() < 0.5: draw.shuffle(order)
        strides, step = [0] * len(own), 1
        for axis in reversed(order):
            strides[axis] = step * (-1 if draw.random() < 0.1 else 1)
            step *= own[axis] + (draw.randint(0, 2) if draw.random() < 0.3 else 0)
            step *= draw.choice((1, 1, 1, 2))
        layouts.append([own, strides])
    # inputs must make the output's shape
    full = np.broadcast_shapes(*(tuple(own) for own, _ in layouts[:2]))
    if full != tuple(shape): layouts[0] = [list(shape), list(contiguous(shape))]
    made = tensors(*layouts)
    code, text, launches = recorder.add(*made)
    answers.append([code, text, is_right(made, launches), [one["operator"] for one in launches], layouts])
"""


def test_random_layouts_are_computed_element_by_element(
    library: Path, objects: Objects, images: Path
) -> None:
    answers = run(library, objects, images, _RANDOM)
    wrong = [answer for answer in answers if answer[0] or not answer[2]]
    assert not wrong, wrong[:3]
    assert {name for answer in answers for name in answer[3]} == {"add_dense", "add_tiles", "add_strided"}


_OVERLAP = """
import random
draw = random.Random(11)
def touched(layout):
    return [set(range(at, at + 4)) for at in layout.addresses(layout.shape)]
while len(answers) < 300:
    shape = [draw.choice((2, 3, 4)) for _ in range(draw.randint(1, 3))]
    made = []
    for out in (False, True):
        strides = [draw.choice((1, 2, 3, 4, 6, 8, 12, 16)) * draw.choice((1, 1, 1, -1)) for _ in shape]
        made.append(Layout(address=ADDRESSES[0] + draw.randint(0, 12) * draw.choice((4, 4, 4, 1)),
            shape=shape, strides=strides))
    left, out = made
    if draw.random() < 0.2: left = out
    bytes_of_out = touched(out)
    if sum(map(len, bytes_of_out)) != len(set().union(*bytes_of_out)): continue  # refused for itself
    right = Layout(address=ADDRESSES[1], shape=shape, strides=contiguous(shape))
    shared = bool(set().union(*touched(left)) & set().union(*bytes_of_out))
    same = list(left.addresses(shape)) == list(out.addresses(shape))
    code, text, launches = recorder.add(left, right, out)
    answers.append([code, text, len(launches), shared and not same])
"""


def test_an_output_that_shares_memory_with_an_input_is_refused(
    library: Path, objects: Objects, images: Path
) -> None:
    answers = run(library, objects, images, _OVERLAP)
    for code, text, launches, shared in answers:
        if "strides let elements overlap" in text:  # without sharing: not proven apart
            continue
        expected = (
            "add: out overlaps input: their elements share memory, but not one by one" if shared else ""
        )
        assert (code, text, launches) == (INVALID_VALUE if shared else 0, expected, 0 if shared else 1)
    assert 30 < sum(answer[3] for answer in answers) < 270


_LARGE = """
for described in (
    (((2**34 + 5,), None), ((2**34 + 5,), None), ((2**34 + 5,), None)),
    (((2**21, 4096), (8192, 1)), ((4096,), None), ((2**21, 4096), None)),
    (((3, 2**32), (1, 3)), ((3, 2**32), None), ((3, 2**32), None)),
    (((2**31, 3), (4, 1)), ((2**31, 3), None), ((2**31, 3), None)),
):
    code, text, launches = recorder.add(*tensors(*described))
    shown = [[one["operator"], one.get("n") or prod(one[f"size_{axis}"] for axis in range(4)), *(one[name]
        for name in TENSORS)] for one in launches]
    answers.append([code, text, [[*one, launch["grid"][0]] for one, launch in zip(shown, launches)]])
"""


def test_more_than_2_31_elements_become_several_launches(
    library: Path, objects: Objects, images: Path
) -> None:
    dense, rows, columns, strided = run(library, objects, images, _LARGE)
    x, y, z = 1 << 40, 2 << 40, 3 << 40
    assert dense[:2] == [0, ""]
    assert dense[2] == [
        ["add_dense", 2**33, x, y, z, 2**23],
        ["add_dense", 2**33, x + 2**35, y + 2**35, z + 2**35, 2**23],
        ["add_dense", 5, x + 2**36, y + 2**36, z + 2**36, 1],
    ]
    parts = [["add_tiles", 2**30, x + 4 * 8192 * 2**18 * i, y, z + 4 * 2**30 * i, 2**20] for i in range(8)]
    assert rows == [0, "", parts]
    assert columns[0] == 0 and {(part[0], part[1]) for part in columns[2]} == {("add_tiles", 2**30)}
    assert len({part[4] for part in columns[2]}) == 12
    most = 2**30 // 3 * 3
    assert [part[:2] for part in strided[2]] == [
        *[["add_strided", most]] * 6,
        ["add_strided", 3 * 2**31 - 6 * most],
    ]


_BAD = """
good = tensors(((4, 6), None), ((6,), None), ((4, 6), None))
large = 2**62
def bad(alpha=1.0, stream=0, **fields):
    made = {name: layout.c_tensor() for name, layout in zip(TENSORS, good)}
    for name, change in fields.items():
        if change is None: made[name] = None
        else: made[name] = good[TENSORS.index(name)].c_tensor(**change)
    code, text = recorder.library.add(made["input"], made["other"], alpha, made["out"], stream)
    answers.append([code, text, len(recorder.launches())])
bad(input=None)
bad(out=None)
bad(other={"data": None})
bad(input={"shape": None})
bad(input={"code": 6, "bits": 8})
bad(input={"bits": 8})
bad(other={"bits": 16})
bad(other={"lanes": 2})
bad(input={"code": 5, "bits": 64})
bad(input={"device_type": 1})
bad(input={"device_type": 4})
bad(out={"device_id": 1})
bad(other={"device_type": 2})
bad(input={"ndim": 65})
bad(input={"ndim": -1})
bad(other={"shape": integers([-6])})
bad(other={"shape": integers([5])})
bad(out={"shape": integers([4, 7])})
bad(out={"shape": integers([6]), "ndim": 1, "strides": None})
bad(out={"strides": integers([0, 1])})
bad(out={"strides": integers([5, 1])})
bad(out={"data": ADDRESSES[0] + 4})
bad(input={"strides": integers([large, 1])})
bad(input={"shape": integers([large, 6])})
bad(input={"byte_offset": 2**64 - 8})
bad(input={"byte_offset": large})
bad(**{name: {"device_id": 1} for name in TENSORS})
bad(alpha=0.5, **{name: {"code": 0, "bits": 32} for name in TENSORS})
bad(alpha=float("nan"), **{name: {"code": 0, "bits": 32} for name in TENSORS})
bad(**{name: {"code": 0, "bits": 32} for name in TENSORS})
"""
_BAD_ANSWERS = (
    (INVALID_VALUE, "add: input is a null pointer"),
    (INVALID_VALUE, "add: out is a null pointer"),
    (INVALID_VALUE, "add: other: data is a null pointer"),
    (INVALID_VALUE, "add: input: shape is a null pointer"),
    (
        INVALID_VALUE,
        "add: input: dtype bool8 is not supported; supported are float16, bfloat16, float32, float64, int8",
    ),
    (INVALID_VALUE, "add: input: dtype float8 is not supported"),
    (INVALID_VALUE, "add: other: dtype float16 differs from float32 of input"),
    (INVALID_VALUE, "add: other: dtype float32x2 is not supported"),
    (INVALID_VALUE, "add: input: dtype complex64 is not supported"),
    (INVALID_DEVICE, "add: other: device rocm:0 differs from cpu:0 of input"),
    (
        INVALID_DEVICE,
        "add: input: device of another type (4) is not supported; supported are cpu (1), cuda (2) and",
    ),
    (INVALID_DEVICE, "add: out: device rocm:1 differs from rocm:0 of input"),
    (INVALID_DEVICE, "add: other: device cuda:0 differs from rocm:0 of input"),
    (INVALID_VALUE, "add: input: 65 axes: a tensor has 0 to 64"),
    (INVALID_VALUE, "add: input: -1 axes"),
    (INVALID_VALUE, "add: other: size -6 of axis 0 is negative"),
    (INVALID_VALUE, "add: other: shape (5) does not broadcast with the inputs before it (5 and 6)"),
    (INVALID_VALUE, "add: out: shape (4, 7) is not (4, 6), to which the inputs broadcast"),
    (INVALID_VALUE, "add: out: shape (6) is not (4, 6), to which the inputs broadcast"),
    (INVALID_VALUE, "add: out is broadcast: an axis with several elements has stride 0"),
    (INVALID_VALUE, "add: out: its strides let elements overlap"),
    (INVALID_VALUE, "add: out overlaps input: their elements share memory"),
    (INVALID_VALUE, "add: input: the tensor is larger than the address space"),
    (INVALID_VALUE, "add: input: the tensor is larger than the address space"),
    (INVALID_VALUE, "add: input: byte_offset 18446744073709551608 is not in the address space"),
    (INVALID_VALUE, "add: input: byte_offset 4611686018427387904 is not in the address space"),
    (
        INVALID_DEVICE,
        "add: stream: it belongs to device 0, and the tensors are on device 1: a null stream is",
    ),
    (INVALID_VALUE, "add: alpha: 0.5 is not a 64-bit integer, and the tensors are of int32"),
    (INVALID_VALUE, "add: alpha: nan is not a 64-bit integer, and the tensors are of int32"),
    (NOT_SUPPORTED, "add: e.add_strided on gfx908: no image for dtype=12"),
)


def test_bad_arguments_are_refused_by_name_and_nothing_is_launched(
    library: Path, objects: Objects, images: Path
) -> None:
    answers = run(library, objects, images, _BAD, HIP_DOUBLE_DEVICES="gfx908,gfx908")
    assert len(answers) == len(_BAD_ANSWERS)
    for (code, text, launches), (wanted, words) in zip(answers, _BAD_ANSWERS, strict=True):
        assert (code, launches) == (wanted, 0) and text.startswith(words), text


_ROWS = """
x, y = (Layout(address=address, shape=(4, 6), strides=(6, 1)) for address in ADDRESSES[:2])
weight = Layout(address=ADDRESSES[2], shape=(6,), strides=(1,))
def rms(input=x, weight=weight, out=y):
    code, text = recorder.library.call("rms_norm", input.c_tensor(), weight.c_tensor(), 0.5, out.c_tensor())
    answers.append([code, text, recorder.launches()])
def like(layout, **fields):
    return Layout(**{"address": layout.address, "shape": layout.shape, "strides": layout.strides} | fields)
rms()
rms(out=x)
rms(input=like(x, shape=(2, 3, 6), strides=(8, 16, 1)), out=like(y, shape=(2, 3, 6), strides=(30, 10, 1)))
rms(input=like(x, shape=(0, 6)), out=like(y, shape=(0, 6)))
rms(input=like(x, shape=(4, 0)), out=like(y, shape=(4, 0)), weight=like(weight, shape=(0,)))
rms(weight=like(weight, shape=(5,)))
rms(weight=like(weight, shape=(), strides=()))
rms(out=like(y, shape=(5, 6)))
rms(out=like(y, address=ADDRESSES[2]))
rms(out=like(x, address=ADDRESSES[0] + 4))
rms(out=like(y, strides=(6, 0)))
rms(out=like(y, strides=(1, -3)))
rms(input=like(x, strides=(12, 2)))
rms(weight=like(weight, shape=(4, 6), strides=(6, 1)))
"""
_ROWS_REFUSED = (
    (INVALID_VALUE, "rms_norm: weight: size 5 of axis 0 (columns) differs from 6 of the tensors before it"),
    (INVALID_VALUE, "rms_norm: weight: 0 axes: it has at least 1, with columns"),
    (INVALID_VALUE, "rms_norm: out: batch shape (5) is not (4), to which the inputs broadcast"),
    (INVALID_VALUE, "rms_norm: out overlaps weight: they must not share memory"),
    (INVALID_VALUE, "rms_norm: out overlaps input: their elements share memory, but not one by one"),
    (INVALID_VALUE, "rms_norm: out is broadcast: an axis with several elements has stride 0"),
    (INVALID_VALUE, "rms_norm: out: its strides let elements overlap"),
    (NOT_SUPPORTED, "rms_norm: out: no form of this function takes these strides and 1 batch axes after "
        "merging"),
    (NOT_SUPPORTED, "rms_norm: out: no form of this function takes these strides and 1 batch axes after "
        "merging"),
)  # fmt: skip


def test_core_axes_are_neither_merged_nor_broadcast(library: Path, objects: Objects, images: Path) -> None:
    answers = run(library, objects, images, _ROWS)
    served, refused = answers[:5], answers[5:]
    x, y, weight = 1 << 40, 2 << 40, 3 << 40
    assert [(code, text, len(launches)) for code, text, launches in served] == [
        (0, "", count) for count in (1, 1, 1, 0, 0)
    ]
    first, same, exchanged = (launches[0] for _, _, launches in served[:3])
    wanted = {"input": x, "weight": weight, "out": y, "n": 4, "columns": 6, "size_0": 4, "size_1": 1,
              "stride_input_0": 6, "stride_out_0": 6, "stride_out_1": 0, "dtype": FP32}  # fmt: skip
    assert wanted.items() <= first.items() and first["eps"] == 0x3F000000
    assert (same["input"], same["out"]) == (x, x)
    wanted = {"n": 6, "size_0": 3, "size_1": 2, "stride_input_0": 16, "stride_input_1": 8, "stride_out_1": 30}
    assert wanted.items() <= exchanged.items()
    assert [tuple(answer[:2]) for answer in refused] == list(_ROWS_REFUSED)
    assert not any(launches for _, _, launches in refused)


_GEMM = """
def at(place, shape, strides=None):
    return Layout(address=place << 40, shape=shape, strides=strides or contiguous(shape))
def gemm(x, weight, bias, out, activation=0):
    given = [None if one is None else one.c_tensor() for one in (x, weight, bias)]
    code, text = recorder.library.call("gemm", *given, ctypes.c_int(activation), out.c_tensor())
    answers.append([code, text, recorder.launches()])
weight, bias = at(2, (64, 72)), at(3, (72,))
gemm(at(1, (40, 64)), weight, bias, at(4, (40, 72)), 2)
gemm(at(1, (40, 64)), at(2, (64, 72), (1, 64)), None, at(4, (40, 72)))
gemm(at(1, (40, 64), (1, 40)), weight, bias, at(4, (40, 72)))
gemm(at(1, (40, 64)), weight, at(3, (72,), (2,)), at(4, (40, 72), (1, 40)))
gemm(at(1, (5, 40, 64)), weight, bias, at(4, (5, 40, 72)))
gemm(at(1, (5, 1, 64), (100, 1, 1)), weight, bias, at(4, (5, 1, 72)))
gemm(at(1, (3, 5, 40, 64), (5 * 2560, 2560, 64, 1)), weight, at(3, (3, 1, 72), (72, 1, 1)), at(4, (3, 5, 40,
    72)))
gemm(at(1, (5, 40, 64), (64, 320, 1)), weight, bias, at(4, (5, 40, 72)))
gemm(at(1, (40, 64)), at(2, (5, 64, 72)), bias, at(4, (5, 40, 72)))
gemm(Layout(address=0, shape=(40, 0), strides=(0, 1)), Layout(address=0, shape=(0, 72), strides=(72, 1)),
    bias, at(4, (40, 72)))
gemm(at(1, (0, 64)), weight, bias, at(4, (0, 72)))
gemm(at(1, (40, 64)), weight, bias, at(4, (40, 72)), 4)
gemm(at(1, (40, 64)), weight, bias, at(4, (40, 72)), -1)
gemm(at(1, (40, 64)), None, bias, at(4, (40, 72)))
gemm(at(1, (40, 64)), at(2, (63, 72)), bias, at(4, (40, 72)))
gemm(at(1, (40, 64)), weight, at(3, (71,)), at(4, (40, 72)))
gemm(at(1, (40, 64)), weight, at(3, (5, 72)), at(4, (40, 72)))
gemm(at(1, (64,)), weight, bias, at(4, (1, 72)))
gemm(at(1, (40, 64)), weight, bias, at(2, (40, 72)))
"""
_GEMM_REFUSED = (
    "gemm: activation: 4 is not a valid option; those are none (0), relu (1), gelu (2), silu (3)",
    "gemm: activation: -1 is not a valid option; those are none (0), relu (1), gelu (2), silu (3)",
    "gemm: weight is a null pointer",
    "gemm: weight: size 63 of axis 0 (inner) differs from 64 of the tensors before it",
    "gemm: bias: size 71 of axis 0 (columns) differs from 72 of the tensors before it",
    "gemm: out: batch shape () is not (5), to which the inputs broadcast",
    "gemm: input: 1 axes: it has at least 2, with rows",
    "gemm: out overlaps weight: they must not share memory",
)


def test_two_core_axes_an_optional_input_and_options(library: Path, objects: Objects, images: Path) -> None:
    answers = run(library, objects, images, _GEMM)
    x, weight, bias, out = (place << 40 for place in (1, 2, 3, 4))
    common = {"input": x, "weight": weight, "out": out, "rows": 40, "columns": 72, "inner": 64, "n": 1}
    with_bias, nn, nt = {"bias": bias, "has_bias": 1}, {"operator": "gemm_nn"}, {"operator": "gemm_nt"}
    strided = {"operator": "gemm_strided"}
    batches = {"n": 5, "size_0": 5, "stride_out_0": 2880, "stride_input_0": 64, "stride_weight_0": 0}
    wanted: tuple[dict[str, object], ...] = (
        {**nn, **with_bias, "activation": 2, "stride_input_rows": 64, "stride_weight_inner": 72,
            "stride_out_rows": 72},
        {**nt, "bias": 0, "has_bias": 0, "activation": 0, "stride_weight_columns": 64},
        {**strided, **with_bias, "stride_input_rows": 1, "stride_input_inner": 40},
        {**strided, "stride_bias_columns": 2, "stride_out_rows": 1, "stride_out_columns": 40},
        # batch axes along which only rows differ are rows
        {**nn, "rows": 200, "stride_input_rows": 64, "stride_out_rows": 72},
        {**nn, "rows": 5, "stride_input_rows": 100, "stride_out_rows": 72},
        {**nn, "rows": 200, "n": 3, "size_0": 3, "stride_bias_0": 72, "stride_weight_0": 0,
            "stride_input_0": 12800},
        {**nn, **batches, "stride_input_rows": 320},
        {**nn, "n": 5, "size_0": 5, "stride_input_0": 0, "stride_weight_0": 4608, "stride_out_0": 2880},
        {**nn, **with_bias, "inner": 0, "input": 0, "weight": 0},
    )  # fmt: skip
    for (code, text, launches), values in zip(answers, wanted, strict=False):
        assert (code, text, len(launches)) == (0, "", 1), values
        expected = {**common, **values}
        assert expected == {name: launches[0][name] for name in expected}
    assert answers[len(wanted)] == [0, "", []]
    assert [answer[1:] for answer in answers[len(wanted) + 1 :]] == [[text, []] for text in _GEMM_REFUSED]


_ONE = """
made = [layout.c_tensor(device_type=DEVICE) for layout in tensors(((9,), None), ((9,), None), ((9,), None))]
answers += recorder.library.add(made[0], made[1], 1.0, made[2])
answers.append(len(recorder.launches()))
"""
_ON_HIP, _ON_CUDA = (_ONE.replace("DEVICE", number) for number in ("10", "2"))


def test_an_unsupported_arch_a_missing_pack_and_no_driver(
    library: Path, objects: Objects, images: Path, tmp_path: Path
) -> None:
    assert run(library, objects, images, _ON_HIP) == [0, "", 1]
    other = run(library, objects, images, _ON_HIP, HIP_DOUBLE_DEVICES="gfx1030")
    assert other == [NO_BINARY, f"add: {images}: no image pack serves gfx1030", 0]
    code, text, launches = run(library, objects, tmp_path / "none", _ON_HIP)
    assert (code, launches) == (NOT_FOUND, 0) and str(tmp_path / "none") in text
    failing = run(library, objects, images, _ON_HIP, HIP_DOUBLE_FAIL="hipModuleLoadData:1:2")
    assert failing[0] == 2 and "HIP does not load it" in failing[1] and failing[2] == 0
    code, text, _ = run(library, objects, images, _ON_CUDA)
    assert (code, text.startswith("add: CUDA is not available: ")) == (NO_DRIVER, True)


_CUDA = """
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuda_double_stream.restype = ctypes.c_void_p
cuda.cuda_double_record.restype = ctypes.c_char_p
stream = cuda.cuda_double_stream(0)
for owner in (0, 1, 0x70, 2, 0x7f):
    made = [layout.c_tensor(device_type=2) for layout in tensors(((9,), None), ((9,), None), ((9,), None))]
    made[1].data |= owner << 56
    answers.append(recorder.library.add(made[0], made[1], 1.0, made[2], stream))
answers.append(cuda.cuda_double_record().decode().count('"launch"'))
"""


def test_memory_of_cuda_devices(library: Path, objects: Objects, images: Path) -> None:
    types = [value.type for value in ADD_DENSE.values]
    image = fake_cubin("add_dense", types, capability=90)
    write(pack_of([ADD_DENSE], "sm_90", image), images / "nvidia-sm_90")
    driver = {
        "LD_LIBRARY_PATH": f"{objects.hip(7)}:{objects.folder / 'cuda'}",
        "CUDA_DOUBLE_DEVICES": "sm_90,sm_90",
    }
    *answers, launches = run(library, objects, images, _CUDA, **driver)
    assert answers == [
        [0, ""],
        [0, ""],
        [0, ""],
        [INVALID_DEVICE, "add: other: data is memory of device 1, and the tensor is on device 0"],
        [INVALID_VALUE, "add: other: data is not memory of CUDA: a pointer to host memory?"],
    ]
    assert launches == 3
