"""CPU images with planted faults: each is named in the verdict, and a sound image of the same family
passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.targets.backends import unexecutable
from aotforge.verify.check_image import check_image
from aotforge.verify.native import executor
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE
from tests.support.families import plan_of
from tests.support.verified import compiled_images

ARCH = "cpu-x86-64-v3"
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(bool(unexecutable(ARCH)), reason=unexecutable(ARCH)),
]

_FAULTS = {
    "sound": "tl.store(out + at, kept, mask=at < n)",
    "behind": "tl.store(out + at, tl.where(at < n, kept, tl.load(x + at, mask=at <= n)), mask=at < n)",
    "before": "tl.store(out + at, tl.where(at < n, kept, tl.load(x + at - 1, mask=at < n)), mask=at < n)",
    "beyond": "tl.store(out + at, kept, mask=at <= n)",
    "input": "tl.store(x + at, kept, mask=at < n)\n    tl.store(out + at, kept, mask=at < n)",
    "null": "tl.store(out + at, kept + tl.load((at * 0).to(tl.int64).to(tl.pointer_type(tl.int8)), "
    "mask=at < n), mask=at < n)",
    "endless": "while tl.load(x) != 101:\n        tl.store(out + at, kept, mask=at < n)",
}
_SIZE = 1001
_EXPECTED = {
    "sound": "",
    "behind": f"access out of bounds: read at byte {_SIZE} of x, which has {_SIZE} bytes",
    "before": f"access out of bounds: read at byte -1 of x, which has {_SIZE} bytes",
    "beyond": f"access out of bounds: write at byte {_SIZE} of out, which has {_SIZE} bytes",
    "input": "the input x was written, at byte ",
    "null": "access out of bounds: read at address 0x0, a null pointer",
    "endless": "no end after 0.3 s of processor time",
}
_KERNEL = """

@triton.jit
def {name}(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.load(x + at, mask=at < n)
    {body}
"""
_RULES = '''"""Kernels of a test."""

from aotforge.rules import Argument, Family, Kernel, Operator, Setting, Term, Value

NAMES = {names!r}
VALUES = (Value(name="x", type="ptr"), Value(name="out", type="ptr"), Value(name="n", type="i32"))
FAMILY = Family(
    name="faults",
    operators=tuple(Operator(name=name, values=VALUES) for name in NAMES),
    kernels=tuple(
        Kernel(
            name=name, source="kernels.py", function=name, operator=name, choices=(),
            arguments=(
                Argument(name="x", type="*i8", value="x"), Argument(name="out", type="*i8", value="out"),
                Argument(name="n", type="i32", value="n"),
            ),
            settings=lambda target, functional: (Setting(constants={{"BLOCK": 256}}),),
            grid=((Term(value="n", divisor="BLOCK"),),),
        )
        for name in NAMES
    ),
)
'''
_CASES = f'''"""Cases of a test."""

from aotforge.verify.calls import Calls, Tensor

CALLS = Calls(
    compute=lambda tensors, values, total: {{"out": tensors["x"]}},
    inputs={{"x": Tensor(shape=("n",), dtype="i8")}}, outputs={{"out": Tensor(shape=("n",), dtype="i8")}},
    shapes=[{{"n": {_SIZE}}}], typical={{"n": {_SIZE}}},
)
cases = CALLS.cases
'''


def fault_tasks(root: Path) -> dict[str, ImageTask]:
    """Images of the kernels, whose sources are written to a kernels root, by kernel."""
    folder = root / "faults"
    folder.mkdir()
    kernels = "".join(_KERNEL.format(name=name, body=_FAULTS[name]) for name in _FAULTS)
    (folder / "kernels.py").write_text(
        f'"""Kernels."""\n\nimport triton\nimport triton.language as tl\n{kernels}'
    )
    (folder / "rules.py").write_text(_RULES.format(names=tuple(_EXPECTED)))
    (folder / "cases.py").write_text(_CASES)
    plan = plan_of(root, arch=ARCH)
    tasks = image_tasks(plan, compiled_images(plan, root), root)
    return {task.label.split(":")[0].removeprefix("faults."): task for task in tasks}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """By kernel."""
    root = tmp_path_factory.mktemp("faults")
    tasks = fault_tasks(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "SECONDS", 0.3)
        return {name: check_image(task, kernels_root=root, cache=CACHE) for name, task in tasks.items()}


@pytest.mark.parametrize("name", sorted(_EXPECTED))
def test_a_fault_is_named(name: str, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert _EXPECTED[name] in verdict.failure
    assert verdict.outcome == ("failed" if _EXPECTED[name] else "passed")
