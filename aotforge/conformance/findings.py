"""Findings of the release checks, and the report that collects them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from aotforge.errors import CompatError

Status = Literal["passed", "failed", "not run"]
_MARKS = {"passed": ("ok     ", "32"), "failed": ("FAILED ", "31"), "not run": ("not run", "33")}
_LISTED = 12
"""Violations that a finding quotes."""


@dataclass(frozen=True)
class Finding:
    """One result: the statement that was tried, what was seen, and the matrix row that it concerns.

    `evidence` of a statement that was not tried is the reason.
    """

    check: str
    what: str
    evidence: str = ""
    row: str = ""
    status: Status = "passed"

    @property
    def subject(self) -> str:
        """The check, with the row if there is one."""
        return f"{self.check}: {self.row}" if self.row else self.check


passed, failed, not_run = Finding, partial(Finding, status="failed"), partial(Finding, status="not run")


def finding_from(
    check: str, what: str, violations: Iterable[str], evidence: str = "", *, row: str = ""
) -> Finding:
    """Failed with the violations, or passed with `evidence` when there are none."""
    listed = list(violations)
    if not listed:
        return passed(check, what, evidence, row=row)
    more = f"; and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return failed(check, what, "; ".join(listed[:_LISTED]) + more, row=row)


def set_violations(
    actual: Iterable[str], wanted: Iterable[str], extra: str, missing: str = "is missing"
) -> list[str]:
    """Violations of two sets of names that must be equal, worded by `extra` and `missing`."""
    there, needed = set(actual), set(wanted)
    lacking = [f"{name} {missing}" for name in sorted(needed - there)]
    return lacking + [f"{name} {extra}" for name in sorted(there - needed)]


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All findings about a release folder, in the checks' order, and the time that they took in seconds."""

    release: str
    folder: str
    findings: tuple[Finding, ...]
    seconds: float

    def of(self, status: Status) -> tuple[Finding, ...]:
        """Findings of one status."""
        return tuple(finding for finding in self.findings if finding.status == status)

    @property
    def ok(self) -> bool:
        """True when nothing failed. A check that was not run has not failed: see `of("not run")`."""
        return not self.of("failed")


def compat_error(report: CheckReport) -> CompatError | None:
    """One error that names every violation; None when there is none."""
    violations = report.of("failed")
    if not violations:
        return None
    lines = "\n".join(f"{f.subject}: {f.what}: {f.evidence}" for f in violations)
    return CompatError(
        f"{report.release}: {len(violations)} of {len(report.findings)} checks found a violation\n{lines}",
        cause="the release contradicts the compatibility matrix or its own manifest",
        hint="`./dev check --release FOLDER --json` lists all that was tried; see docs/compatibility.md",
    )


def require_ok(report: CheckReport) -> None:
    """Raises CompatError naming every violation."""
    if error := compat_error(report):
        raise error


def report_fields(report: CheckReport) -> dict[str, object]:
    """The report for `--json`, with `error` as other tasks have it when something failed."""
    error = compat_error(report)
    fields = asdict(report) | {"ok": report.ok, "seconds": round(report.seconds, 2)}
    return fields | ({"error": error.fields()} if error else {})


def report_lines(report: CheckReport, *, colour: bool = False) -> list[str]:
    """The report for a terminal: a line per finding, then the counts."""
    lines = []
    for finding in report.findings:
        mark, code = _MARKS[finding.status]
        if colour:
            mark = f"\x1b[{code}m{mark}\x1b[0m"
        evidence = f" ({finding.evidence})" if finding.evidence else ""
        lines.append(f"{mark}  {finding.subject}: {finding.what}{evidence}")
    counts = ", ".join(f"{len(report.of(status))} {status}" for status in ("passed", "failed", "not run"))
    return [*lines, f"{report.release}: {counts}, in {report.seconds:.1f} s"]
