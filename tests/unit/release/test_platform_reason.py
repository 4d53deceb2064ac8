"""Why a development build is one: its library's platform."""

from __future__ import annotations

import pytest

from aotforge.release.assemble import platform_reason
from aotforge.release.model import PlatformTag


@pytest.mark.parametrize(
    ("measured", "reasons", "text"),
    [
        (
            "manylinux_2_34_x86_64",
            ("GLIBC_2.34 of libc.so.6", "GLIBC_2.33 of libc.so.6"),
            "the library needs glibc 2.34 (manylinux_2_34_x86_64), "
            "a release runs with 2.28 (manylinux_2_28_x86_64)",
        ),
        (
            "linux_x86_64",
            ("dependency on libother.so.3",),
            "the library is linux_x86_64, not manylinux_2_28_x86_64: it needs dependency on libother.so.3",
        ),
        (
            "manylinux_2_34_x86_64",
            ("GLIBC_2.34 of libc.so.6", "GLIBCXX_3.4.30 of libstdc++.so.6", "a", "b"),
            "the library is manylinux_2_34_x86_64, not manylinux_2_28_x86_64: "
            "it needs GLIBC_2.34 of libc.so.6, "
            "GLIBCXX_3.4.30 of libstdc++.so.6, a and 1 more",
        ),
    ],
)
def test_the_reason_names_glibc_or_what_is_needed(measured: str, reasons: tuple[str, ...], text: str) -> None:
    tag = PlatformTag(
        measured=measured, promised="manylinux_2_28_x86_64", tag=measured, reaches=False, reasons=reasons
    )
    assert platform_reason(tag) == text
