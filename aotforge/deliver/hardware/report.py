"""The report of a check on hardware: a JSON file, signed where a key is given, an HTML page, text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotforge.base.files import write_atomic
from aotforge.base.hardware import HardwareReport, ReportedImage, ReportedTime
from aotforge.base.html import render
from aotforge.errors import VerifyError, listed
from aotforge.release.signing import sign_statement

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "urn:aotforge:hardware-check:v1"
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """A report with the files that hold it."""

    report: HardwareReport
    json: Path
    html: Path
    signed: bool

    def fields(self) -> dict[str, object]:
        """JSON values."""
        files = {"json": str(self.json), "html": str(self.html), "signed": self.signed}
        return {**self.report.model_dump(mode="json", by_alias=True), "files": files}

    def lines(self) -> list[str]:
        """Every image that is not right, times, counts, files."""
        report, counts = self.report, ", ".join(f"{n} {state}" for state, n in self.report.counts.items())
        more = len(report.wrong) - _SHOWN
        compared = [image for image in report.images if image.elements]
        exact = [image for image in compared if image.exact]
        equal = sum(not image.unequal for image in exact)
        files = f"{self.json} ({'signed' if self.signed else 'not signed'}) and {self.html}"
        return [
            *(
                f"{image.state:12}  {image.label}:\n{indent(reason(image), '    ')}"
                for image in report.wrong[:_SHOWN]
            ),
            *([f"and {more} more images, all in the report"] if more > 0 else []),
            *(time_line(time) for time in report.times),
            f"PyTorch: {report.torch}",
            f"{len(compared)} images were compared with the virtual GPU; in {len(exact)} every instruction "
            f"has one right result, "
            f"{equal} of these have the same bits",
            *([f"the check ended early: {report.ended}"] if report.ended else []),
            f"{len(report.images)} images of {report.release} on {report.device.name} "
            f"({report.device.arch}), {report.device.version}: {counts}; {report.seconds:.0f} s",
            f"written: {files}",
        ]

    def require_passed(self) -> None:
        """Raises VerifyError naming every image that is not right."""
        if wrong := self.report.wrong:
            states = ", ".join(f"{n} {state}" for state, n in self.report.counts.items() if state != "passed")
            raise VerifyError(
                f"{len(wrong)} of {len(self.report.images)} images are not right on this GPU ({states}): "
                f"{listed([image.label for image in wrong], _SHOWN)}",
                cause="a fault of the images, of the driver or of the GPU",
                hint=f"attach {self.html} and {self.json} to a bug report",
            )


def reason(image: ReportedImage) -> str:
    """Why an image is not right."""
    return image.failure or image.differs or "no case is dispatched to this image"


def time_line(time: ReportedTime) -> str:
    """`attn_fwd dtype=fp16,width=64: 0.123 ms, PyTorch's math path 0.456 ms (3.7 x)`."""
    beside = f", PyTorch's math path {time.torch:.3f} ms" if time.torch is not None else ""
    factor = f" ({time.torch / time.milliseconds:.1f} x)" if time.torch and time.milliseconds else ""
    return f"{time.operator} {time.functional}: {time.milliseconds:.3f} ms{beside}{factor}"


def write_report(report: HardwareReport, folder: Path, *, key: Ed25519PrivateKey | None) -> WrittenReport:
    """`hardware-ARCH-DATE.json` and `.html` in `folder`; another report of the same day is replaced. Raises
    OutputError."""
    name = f"hardware-{report.device.arch}-{report.date}"
    data = (json.dumps(_statement(report), indent=1) + "\n").encode()
    page = render("hardware_report.html", report=report, reason=reason, time_line=time_line)
    written = WrittenReport(
        report=report, json=folder / f"{name}.json", html=folder / f"{name}.html", signed=key is not None
    )
    write_atomic(written.json, sign_statement(data, key) if key else data)
    write_atomic(written.html, page.encode())
    return written


def _statement(report: HardwareReport) -> dict[str, object]:
    """An in-toto statement about the release."""
    return {
        "_type": STATEMENT,
        "subject": [{"name": f"{report.release}/SHA256SUMS", "digest": {"sha256": report.sums}}],
        "predicateType": PREDICATE,
        "predicate": report.model_dump(mode="json", by_alias=True),
    }
