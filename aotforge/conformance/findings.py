"""What a check found: typed findings, collected before anything fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from aotforge.errors import CompatError

Status = Literal["passed", "failed", "not run"]
_MARKS = {"passed": "ok     ", "failed": "FAILED ", "not run": "not run"}
_COLOURS = {"passed": "32", "failed": "31", "not run": "33"}
_LISTED = 12


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result. `row` is the matrix row that it concerns, empty when it concerns the release as a whole; `what` is the statement that
    was tried, `evidence` what was seen.
    """

    check: str
    status: Status
    what: str
    evidence: str = ""
    row: str = ""

    @property
    def subject(self) -> str:
        """The row, else the check."""
        return f"{self.check}: {self.row}" if self.row else self.check


def passed(check: str, what: str, evidence: str = "", *, row: str = "") -> Finding:
    """It was tried and holds."""
    return Finding(check=check, status="passed", what=what, evidence=evidence, row=row)


def failed(check: str, what: str, evidence: str = "", *, row: str = "") -> Finding:
    """It was tried and does not hold."""
    return Finding(check=check, status="failed", what=what, evidence=evidence, row=row)


def not_run(check: str, what: str, evidence: str = "", *, row: str = "") -> Finding:
    """It was not tried; `evidence` says why."""
    return Finding(check=check, status="not run", what=what, evidence=evidence, row=row)


def finding_from(
    check: str, what: str, complaints: Iterable[str], evidence: str = "", *, row: str = ""
) -> Finding:
    """Failed with the complaints, or passed with `evidence` when there are none."""
    found = list(complaints)
    if not found:
        return passed(check, what, evidence, row=row)
    more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return failed(check, what, "; ".join(found[:_LISTED]) + more, row=row)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Everything that was found about a release folder, in the checks' order. `seconds` is the time that it took."""

    release: str
    folder: str
    findings: tuple[Finding, ...]
    seconds: float

    def of(self, status: Status) -> tuple[Finding, ...]:
        """Findings of one status."""
        return tuple(finding for finding in self.findings if finding.status == status)

    @property
    def ok(self) -> bool:
        """Nothing failed. What was not run has not failed: see `of("not run")`."""
        return not self.of("failed")


def violation(report: CheckReport) -> CompatError | None:
    """One error that names every violation; None when there is none."""
    violations = report.of("failed")
    if not violations:
        return None
    lines = "\n".join(f"{f.subject}: {f.what}: {f.evidence}" for f in violations)
    return CompatError(
        f"{report.release}: {len(violations)} of {len(report.findings)} checks found a violation\n{lines}",
        cause="the release does not hold what the compatibility matrix or its own manifest says",
        hint="`./dev check --release FOLDER --json` has everything that was tried; docs/compatibility.md explains each check",
    )


def require_ok(report: CheckReport) -> None:
    """Raises CompatError naming every violation."""
    if error := violation(report):
        raise error


def report_fields(report: CheckReport) -> dict[str, object]:
    """The report for `--json`, with `error` as other tasks have it when something failed."""
    error = violation(report)
    fields = (
        {"kind": error.kind, "what": error.what, "cause": error.cause, "hint": error.hint} if error else None
    )
    return ({"error": fields} if fields else {}) | {
        "release": report.release,
        "folder": report.folder,
        "ok": report.ok,
        "seconds": round(report.seconds, 2),
        "findings": [asdict(finding) for finding in report.findings],
    }


def report_lines(report: CheckReport, *, colour: bool = False) -> list[str]:
    """The report for people: a line per finding, then the count."""
    lines = []
    for finding in report.findings:
        mark = _MARKS[finding.status]
        if colour:
            mark = f"\x1b[{_COLOURS[finding.status]}m{mark}\x1b[0m"
        evidence = f" ({finding.evidence})" if finding.evidence else ""
        lines.append(f"{mark}  {finding.subject}: {finding.what}{evidence}")
    counts = ", ".join(f"{len(report.of(status))} {status}" for status in ("passed", "failed", "not run"))
    lines.append(f"{report.release}: {counts}, in {report.seconds:.1f} s")
    return lines
