"""What is kept of a source with kernels, so that a host compiler reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vgpu.hip.build_hip import find_compiler

from .kept import kept

SOURCE = r"""
#include "header.h"
namespace outer {
namespace {
struct Used { int value[3] = {1, 2, 3}; };
template <typename T, int N>
__global__ void kernel(T* x) { x[threadIdx.x] = N; }
template <class F = void(int)>
int helper(const Used& used) { return used.value[1] + '{' - '{'; }
}  // namespace
int later(int);
using Number = int;
int launched(int n) {
  kernel<int, 4><<<n, 64>>>(nullptr);
  return n;
}
std::array<int, 2> wanted(Number n, const char* text = "} ; {") {
  if (n) { return {helper<>(Used{}), n}; }
#ifdef ABSENT
  return {launched(n), 0};
#endif
  return {later(n), 0};
}
int later(int n) { return n + 40; }
int registered() { return 7; }
static int (*const g_table[])() = {&registered};
inline namespace inner { int other(int n) { return launched(n); } }
}  // namespace outer
int main() {
  return outer::wanted(1)[0] == 2 && outer::wanted(0)[0] == 40 ? 0 : 1;
}
"""


def test_functions_with_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "header.h").write_text("#include <array>\ninline int of_header() { return 1; }\n")
    source = tmp_path / "source.hip"
    source.write_text(SOURCE)
    compiler = find_compiler({"PATH": "/usr/local/bin:/usr/bin:/bin"})
    made = subprocess.run([*compiler, "-x", "c++", "-E", source], capture_output=True, text=True, check=True)
    text = kept(made.stdout, str(source), ["wanted", "main"])
    assert "of_header" in text and "registered" in text
    assert not any(word in text for word in ("kernel<", "__global__", "launched(int n) {", "other(int"))
    (tmp_path / "out.ii").write_text(text)
    subprocess.run(
        [*compiler, "-x", "c++-cpp-output", tmp_path / "out.ii", "-o", tmp_path / "a.out"], check=True
    )
    assert subprocess.run([tmp_path / "a.out"], check=False).returncode == 0
    with pytest.raises(KeyError, match="absent"):
        kept(made.stdout, str(source), ["wanted", "absent"])
