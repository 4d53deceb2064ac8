"""What a release is refused for, in numbers: images without a verdict, packs without a text or a record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotforge.errors import ReleaseError, VerifyError
from aotforge.release.assemble import _check_pack, _unverified_reasons, platform_reason
from aotforge.release.model import PackInput, PlatformTag
from tests.integration.release.standin import packed

PACKED = packed()


def lacking(count: int) -> PackInput:
    """The pack with this many images that were not executed."""
    records = [replace(one, verdict=None) if i < count else one for i, one in enumerate(PACKED.records)]
    return replace(PACKED, records=tuple(records))


def test_images_with_verdicts_lack_nothing() -> None:
    assert _unverified_reasons([PACKED, PACKED], unverified=False) == ()


@pytest.mark.parametrize(
    ("count", "listed", "more"), [(1, 1, None), (10, 10, None), (11, 10, 1), (28, 10, 18)]
)
def test_ten_images_without_a_verdict_are_listed(count: int, listed: int, more: int | None) -> None:
    with pytest.raises(VerifyError) as caught:
        _unverified_reasons([PACKED, lacking(count)], unverified=False)
    first, *lines = caught.value.what.splitlines()
    assert first == f"{count} of 56 images have no passed verdict and cannot be released"
    names = [f"{record.label}: not executed" for record in PACKED.records[:listed]]
    assert lines == [*names, *([f"... and {more} more"] if more else [])]
    assert _unverified_reasons([PACKED, lacking(count)], unverified=True) == (
        f"{count} of 28 images of amd-test are not verified: nothing executed them",
    )


def test_every_image_has_a_text_and_a_record_and_no_other_has() -> None:
    _check_pack(PACKED)
    first = PACKED.records[0].digest
    texts = {digest: text for digest, text in PACKED.assembly.items() if digest != first}
    other = replace(PACKED.records[0], digest="0" * 64)
    for wrong, reason in (
        (replace(PACKED, assembly=texts), f"{first} has no assembly text"),
        (replace(PACKED, assembly={**PACKED.assembly, "0" * 64: ""}), "or the text has no image"),
        (replace(PACKED, records=PACKED.records[1:]), f"{first} has no record of its resources"),
        (replace(PACKED, records=(*PACKED.records, other)), "or the record has no image"),
    ):
        with pytest.raises(ReleaseError, match=reason):
            _check_pack(wrong)


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
