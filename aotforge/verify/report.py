"""Verdicts for people, for programs, and as an error."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from aotforge.errors import VerifyError
from aotforge.verify.verdict import Verdict, VerifyReport

_LISTED = 20


def report_json(report: VerifyReport) -> str:
    """JSON; figures are null where they are infinite (not-a-number, or elements that were not written). `worst` is the largest of
    an image's figures, `mix` wave-instructions by class.
    """
    fields = asdict(report)
    fields["counts"] = dict(Counter(v.outcome for v in report.verdicts))
    for verdict, shown in zip(report.verdicts, fields["verdicts"], strict=True):
        shown["worst"] = verdict.worst
        shown["mix"] = dict(verdict.mix)
    return json.dumps(_finite(fields), indent=1, allow_nan=False)


def joined_report(reports: Sequence[VerifyReport]) -> VerifyReport:
    """One report of several packs (at least one), one after another."""
    return VerifyReport(
        pack=", ".join(report.pack for report in reports),
        archs=tuple(arch for report in reports for arch in report.archs),
        profile=", ".join(dict.fromkeys(report.profile for report in reports)),
        verdicts=tuple(verdict for report in reports for verdict in report.verdicts),
        seconds=sum(report.seconds for report in reports),
    )


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report_text(report: VerifyReport) -> str:
    """A line per image and one for all of them."""
    lines = [_line(verdict) for verdict in report.verdicts]
    counts = Counter(v.outcome for v in report.verdicts)
    cached = sum(v.cached for v in report.verdicts)
    found = ", ".join(f"{counts[o]} {o}" for o in ("passed", "failed", "unverified") if counts[o])
    runs, instructions = sum(v.runs for v in report.verdicts), sum(v.instructions for v in report.verdicts)
    lines.append(
        f"{len(report.verdicts)} images of {report.pack}, profile {report.profile}: {found} ({cached} known before); "
        f"{runs} launches, {instructions / 1e6:.1f} million wave-instructions, {report.seconds:.1f} s"
    )
    return "\n".join(lines)


def require_passed(report: VerifyReport) -> None:
    """Raises VerifyError naming every image that failed or that no case reached."""
    failed = [v for v in report.verdicts if v.outcome == "failed"]
    unverified = [v for v in report.verdicts if v.outcome == "unverified"]
    if not failed and not unverified:
        return
    entries = [f"{v.label}:\n    " + v.failure.replace("\n", "\n    ") for v in failed]
    entries += [f"{v.label}: no case leads to this image" for v in unverified]
    more = f"\n... and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    raise VerifyError(
        f"{len(failed)} of {len(report.verdicts)} images failed, {len(unverified)} are unverified\n"
        + "\n".join(entries[:_LISTED])
        + more,
        cause="an image computes something else than its reference, or does what it must not"
        if failed
        else "the family has no cases.py, or none of its cases is dispatched to the image",
        hint="run the kernel's source on the same case (`./dev debug`), then step through the image: docs/virtual-gpu-tools.md"
        if failed
        else "add cases to kernels/<family>/cases.py",
    )


def _line(verdict: Verdict) -> str:
    if verdict.outcome == "unverified":
        return f"unverified  {verdict.label}: no case leads to this image"
    head = f"{verdict.outcome:10}  {verdict.label}: {len(verdict.cases)} cases, {verdict.runs} launches"
    if verdict.outcome == "failed":
        return f"{head}\n    " + verdict.failure.replace("\n", "\n    ")
    figures = "; ".join(
        f"{one.name} errs by {one.tensor:.2f} of what is allowed ({one.at}), elements by {one.element:.2f}, tiles by {one.tile:.2f}"
        for one in verdict.outputs
    )
    return f"{head}, {verdict.instructions} wave-instructions; {figures}"
