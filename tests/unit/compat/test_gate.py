"""The matrix as others ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.compat import load_matrix
from aotforge.compat.gate import check_build, check_drop_in, reads_base_url
from aotforge.errors import CompatError, UnknownNameError

COMPAT = load_matrix(Path(__file__).parents[3])
NAME = "libaotriton_v2.so.0.{}"


@pytest.mark.parametrize(
    ("pytorch", "names"),
    [
        ("2.9.1", ["11.0"]),
        ("2.9.0+rocm7.0", ["11.1"]),  # the fork's
        ("2.10.0", ["11.1"]),
        ("2.10.0", ["11.2"]),  # the fork's 2.10 is not established: the name decides
        ("2.12.0", ["11.2"]),
        ("", ["11.0"]),
        ("2.99.0", ["11.2"]),
    ],
)
def test_allowed(pytorch: str, names: list[str]) -> None:
    check_drop_in(COMPAT, pytorch=pytorch, needed=[NAME.format(name) for name in names])


@pytest.mark.parametrize(
    ("pytorch", "names", "reason"),
    [
        ("2.7.1", ["9.2"], "another feature release"),
        ("2.13.0", ["12.0"], "another feature release"),
        ("", ["10.0"], "another feature release"),
        ("2.8.0", ["11.0"], "params.D as a tensor"),
        ("2.9.0", ["11.2"], "needs libaotriton_v2.so.0.11.0"),
        ("2.2.0", ["11.0"], "no support"),
    ],
)
def test_refused(pytorch: str, names: list[str], reason: str) -> None:
    with pytest.raises(CompatError, match=reason):
        check_drop_in(COMPAT, pytorch=pytorch, needed=[NAME.format(name) for name in names])


def test_builds() -> None:
    for version in ("2.9", "2.10", "2.11", "2.12"):
        assert not reads_base_url(check_build(COMPAT, pytorch=version))
    for version in ("2.7", "2.8", "2.13", "main"):
        with pytest.raises(CompatError, match="it is written for API level"):
            check_build(COMPAT, pytorch=version)
    with pytest.raises(UnknownNameError):
        check_build(COMPAT, pytorch="9.9")
    assert reads_base_url(COMPAT.find("2.13")) and reads_base_url(COMPAT.find("main"))
