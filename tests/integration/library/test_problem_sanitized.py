"""Checks of tensors under UndefinedBehaviorSanitizer: no size or offset that a caller gives is computed with
undefined overflow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.runtime import ROOT

pytestmark = [pytest.mark.compiler, pytest.mark.slow]

_PROGRAM = """
#include <cstdio>

#include "ops/error.h"
#include "ops/problem.h"

using namespace aotforge::ops;

int main() {
  const Parameter parameters[] = {{"input", Kind::input, true, false, {}, 0, nullptr, 0}, {"out",
      Kind::output, false, false, {}, 0, nullptr, 0}};
  const ElementType types[] = {{2, 32, 1, "float32"}};
  const Function function = {"copy", parameters, 2, types, 1, nullptr, 0, {}, 0, 0};
  int64_t shape[] = {0, INT64_MAX / 2, INT64_MAX / 2, 6};  // one is empty, the others exceed 64 bits
  char data[64];
  aotforge_tensor tensor = {data, AOTFORGE_DEVICE_ROCM, 0, 4, {2, 32, 1}, shape, nullptr, 0};
  const Argument arguments[] = {of_tensor(&tensor), of_tensor(&tensor)};
  for (int axis = 0; axis < 4; ++axis) {
    Problem problem;
    if (make_problem(function, arguments, problem) != 0 || !problem.is_empty || problem.elements != 0)
        return std::puts(last_error()), 1;
    if (axis < 3) shape[axis] = shape[axis + 1], shape[axis + 1] = 0;
  }
  for (const uint64_t offset : {UINT64_MAX, UINT64_MAX / 2 + 1, UINT64_MAX / 2}) {
    Problem problem;
    tensor.byte_offset = offset;
    if (make_problem(function, arguments, problem) == 0) return
        std::puts("an offset outside of the address space"), 2;
  }
}
"""


def test_sizes_and_offsets_of_callers(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(_PROGRAM)
    source = ROOT / "runtime" / "src"
    command = ["g++", "-std=c++17", "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command += [f"-I{folder}" for folder in (source, source / "standin", ROOT / "runtime" / "include")]
    files = [tmp_path / "main.cpp", source / "ops" / "problem.cpp", source / "ops" / "error.cpp"]
    subprocess.run([*command, *files, "-o", tmp_path / "program"], check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
