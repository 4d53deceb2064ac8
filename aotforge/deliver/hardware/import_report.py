"""Import of a hardware report: signature, form and origin checked, then one file."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aotforge.base.files import make_folders, write_atomic
from aotforge.base.hardware import HardwareReport, HardwareRun
from aotforge.base.manifest_reader import write_yaml
from aotforge.deliver.hardware.report import PREDICATE, STATEMENT
from aotforge.errors import ReportError
from aotforge.formats.untrusted_file import parse_json, parse_model, read_regular
from aotforge.release.signing import open_statement

_LIMIT = 32 * 1024 * 1024
_AGAIN = "repeat the check with ./dev hardware.check, and send its file as it is"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The file that was written and its content."""

    path: Path
    run: HardwareRun

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {"path": str(self.path), **self.run.model_dump(mode="json", by_alias=True)}

    def lines(self) -> list[str]:
        """What the matrix shows from now on."""
        signed = f"signed by {self.run.key[:16]}" if self.run.key else "not signed"
        return [f"run on hardware: {self.run.line}", f"{self.path} ({signed})"]


def import_report(path: Path, manifests: Path, *, key: Ed25519PublicKey | None) -> Imported:
    """Writes `manifests`/hardware/ARCH-DIGEST.yaml; the same report gives the same file. Without `key` no
    signature is checked.

    Raises ReportError for a file that is not a complete report of hardware, SignatureError, OutputError.
    """
    try:
        data = read_regular(path, limit=_LIMIT)
    except OSError as error:
        raise ReportError(
            f"{path} cannot be read: {error.strerror or error}", hint="name a file of ./dev hardware.check"
        ) from error
    report = read_report(data, key, str(path))
    if report.device.emulator:
        raise ReportError(
            f"{path} is of {report.device.emulator}, not of hardware",
            hint="run ./dev hardware.check on a machine with the GPU",
        )
    if not any(image.launches for image in report.images):
        raise ReportError(
            f"{path} has no image that was executed", cause="the check ended before", hint=_AGAIN
        )
    public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) if key else b""
    run = _run_of(report, hashlib.sha256(data).hexdigest(), hashlib.sha256(public).hexdigest() if key else "")
    target = manifests / "hardware" / f"{report.device.arch}-{run.report[:12]}.yaml"
    make_folders(target.parent)
    text = write_yaml(run.model_dump(mode="json", by_alias=True))
    write_atomic(
        target, f"# ./dev hardware.import of a report that ./dev hardware.check made.\n{text}".encode()
    )
    return Imported(path=target, run=run)


def read_report(data: bytes, key: Ed25519PublicKey | None, name: str) -> HardwareReport:
    """The report in a file's bytes. Raises ReportError, SignatureError when `key` did not sign it."""
    try:
        document = parse_json(data)
        enveloped = isinstance(document, dict) and "payload" in document
        if key or enveloped:
            data = open_statement(data, key) if key else base64.b64decode(document["payload"], validate=True)
            document = parse_json(data)
        if (document["_type"], document["predicateType"]) != (STATEMENT, PREDICATE):
            raise ValueError(f"its type is {str(document['predicateType'])[:80]!r}")
        return parse_model(json.dumps(document["predicate"]), HardwareReport)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReportError(
            f"{name} is not a valid report of a check: {error!s:.200}",
            cause="it is another file, was edited, or is of another version",
            hint=_AGAIN,
        ) from None


def _run_of(report: HardwareReport, digest: str, key: str) -> HardwareRun:
    exact = [image for image in report.images if image.exact and image.elements]
    same = {name: getattr(report, name) for name in ("date", "device", "rocm", "release", "profile", "times")}
    return HardwareRun(
        schema=1,
        **same,
        images=len(report.images),
        passed=report.counts.get("passed", 0),
        exact=len(exact),
        same=sum(not image.unequal for image in exact),
        wrong={image.label: image.state for image in report.wrong},
        report=digest,
        key=key,
    )
