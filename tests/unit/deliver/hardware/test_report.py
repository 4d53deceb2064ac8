"""Reports: signed or not, imported only when they are complete and of hardware, shown by the matrix."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotforge.base.hardware import load_hardware_runs
from aotforge.conformance.matrix import load_matrix, recommend
from aotforge.conformance.matrix_show import (
    matrix_fields,
    matrix_html,
    matrix_text,
    recommendation_text,
)
from aotforge.deliver.dropin.install_dropin import caution
from aotforge.deliver.hardware.import_report import import_report
from aotforge.deliver.hardware.report import write_report
from aotforge.errors import ReportError, SignatureError, VerifyError
from tests.support.families import PROJECT
from tests.unit.deliver.hardware.samples import ADD, FORWARD, MI100, report

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def test_a_signed_report_becomes_one_file_that_the_matrix_shows(tmp_path: Path) -> None:
    written = write_report(report(), tmp_path, key=KEY)
    assert (written.json.name, written.signed) == ("hardware-gfx908-2026-11-22.json", True)
    made = import_report(written.json, tmp_path / "manifests", key=KEY.public_key())
    assert import_report(written.json, tmp_path / "manifests", key=KEY.public_key()).path == made.path
    (run,) = load_hardware_runs(tmp_path / "manifests")
    assert run == made.run and len(run.key) == 64
    assert run.line == "gfx908 (AMD Instinct MI100), ROCm 7.0, 2026-11-22: 2 of 2 images of 0.11.2b-r1 passed"
    assert (run.exact, run.same, run.wrong) == (1, 1, {})
    for name in ("compat", "kernels"):
        (tmp_path / name).symlink_to(PROJECT / name)
    for path in (PROJECT / "manifests").glob("*.yaml"):
        (tmp_path / "manifests" / path.name).symlink_to(path)
    compat = load_matrix(tmp_path)
    assert f"Run on hardware:\n  {run.line}"[:60] in matrix_text(compat)
    assert run.line in matrix_html(compat) and matrix_fields(compat)["hardware"] == [
        run.model_dump(mode="json", by_alias=True)
    ]
    assert caution(tmp_path).startswith("images have run on a real GPU for gfx908 only")
    for arch, expected in (("gfx908", True), ("gfx90a", False)):
        found = recommendation_text(recommend(compat, tmp_path, pytorch="2.9", arch=arch))
        assert (f"note: run on hardware: {run.line}" in found) is expected


def altered(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The report in an envelope, changed; its signature stays."""
    envelope = json.loads(path.read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    change(statement["predicate"])
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    path.write_text(json.dumps(envelope))


def test_a_changed_report_and_another_key_are_refused(tmp_path: Path) -> None:
    written = write_report(report(), tmp_path, key=KEY)
    with pytest.raises(SignatureError, match="is not signed by this key"):
        import_report(written.json, tmp_path, key=OTHER.public_key())
    altered(written.json, lambda fields: fields.update(rocm="9.9"))
    with pytest.raises(SignatureError, match="is not signed by this key"):
        import_report(written.json, tmp_path, key=KEY.public_key())
    unsigned = write_report(report(), tmp_path / "unsigned", key=None)
    with pytest.raises(SignatureError):
        import_report(unsigned.json, tmp_path, key=KEY.public_key())
    assert not (tmp_path / "hardware").exists()
    assert import_report(unsigned.json, tmp_path, key=None).run.key == ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda fields: fields["device"].update(emulator="virtual HIP"),
            "is of virtual HIP, not of hardware",
        ),
        (lambda fields: fields.update(images=[]), "has no image that was executed"),
        (lambda fields: fields.update(extra=1), "extra: Extra inputs are not permitted"),
        (lambda fields: fields.pop("release"), "release: Field required"),
        (lambda fields: fields.update(release="a\nb"), "release: String should match pattern"),
        (lambda fields: fields.update(date="today"), "date: String should match pattern"),
        (lambda fields: fields.update(date="2026-02-30"), "date: Value error"),
        (lambda fields: fields["images"][0].update(same=-1), "images.0.same: Input should be greater"),
        (
            lambda fields: fields["images"][0].update(failure="x" * 20000),
            "images.0.failure: String should have at most",
        ),
        (lambda fields: fields["device"].update(arch="../../x"), "device.arch: String should match pattern"),
        (lambda fields: fields.update(seconds="1"), "seconds: Input should be a valid number"),
    ],
)
def test_a_report_that_is_not_valid_is_refused(tmp_path: Path, change: Any, expected: str) -> None:
    written = write_report(report(), tmp_path, key=KEY)
    altered(written.json, change)
    with pytest.raises(ReportError) as caught:
        import_report(written.json, tmp_path, key=None)
    assert expected in caught.value.what and caught.value.hint
    assert not (tmp_path / "hardware").exists()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"payload": "*"}', b'{"payload": ""}', b"[" * 100000, b"null"]
)
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(data)
    with pytest.raises(ReportError, match="is not a valid report"):
        import_report(path, tmp_path, key=None)
    with pytest.raises(ReportError, match="cannot be read"):
        import_report(tmp_path / "missing", tmp_path, key=None)


def test_what_is_not_right_is_named_everywhere(tmp_path: Path) -> None:
    wrong = (
        FORWARD.model_copy(
            update={"outcome": "hang", "failure": "ragged: no end after 60 s", "label": "<b>k</b>"}
        ),
        ADD.model_copy(update={"same": 99, "differs": "8 elements: out at (0,) is 1 on the device"}),
    )
    written = write_report(report(images=(*wrong, ADD)), tmp_path, key=None)
    page, text = written.html.read_text(), "\n".join(written.lines())
    assert "&lt;b&gt;k" in page and "<b>k" not in page and "<script" not in page
    for shown in (page, text):
        assert "ragged: no end after 60 s" in shown and "out at (0,) is 1 on the device" in shown
    assert "in 2 every instruction has one right result, 1 of these have the same bits" in text
    assert "attn_fwd dtype=fp16,width=64: 0.500 ms, PyTorch's math path 2.000 ms (4.0 x)" in text
    assert "1 passed" in text and "1 hang" in text and "1 differs" in text
    with pytest.raises(
        VerifyError, match=r"2 of 3 images are not right on this GPU .*<b>k</b>, add\.add"
    ) as caught:
        written.require_passed()
    assert str(written.html) in caught.value.hint
    made = import_report(written.json, tmp_path, key=None).run
    assert made.wrong == {"<b>k</b>": "hang", ADD.label: "differs"} and made.passed == 1
    assert (
        yaml.safe_load((tmp_path / "hardware" / f"gfx908-{made.report[:12]}.yaml").read_text())["device"][
            "name"
        ]
        == MI100.name
    )
