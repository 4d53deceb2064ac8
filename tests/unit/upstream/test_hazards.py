"""The report on hazards that AOTriton's images have."""

from pathlib import Path

from aotforge.upstream.verify import ImageVerdict, VerifyReport, hazards_in
from tests.support.families import hazards

PAIR = "v_dual_add_f32 v19, v24, v23 :: v_dual_add_f32 v20, v30, v28"


def test_images_of_each_hazard_are_counted(tmp_path: Path) -> None:
    def image(arch: str, code: str) -> ImageVerdict:
        text = tmp_path / "image.s"
        text.write_text(
            f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n\t.text\nk:\n\t{code}\n\ts_endpgm\n'
            f"\t.section .rodata\n\t.amdhsa_kernel k\n"
        )
        return ImageVerdict("f", "e", arch, hazards=hazards_in((text, arch, hazards())))

    images = (
        image("gfx1100", PAIR),
        image("gfx1100", "s_nop 0"),
        image("gfx1201", PAIR),
        image("gfx1101", PAIR),
    )
    report = VerifyReport(library="", images=images, calls=0, refused=(), seconds=0)
    assert [image.hazards for image in images] == [("dual-issue-parity",), (), (), ("dual-issue-parity",)]
    assert "hazard dual-issue-parity: 2 images" in report.lines()
