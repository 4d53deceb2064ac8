"""The demo's report for people and for programs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from aotforge.devtools.demo.model import DemoReport, Result
from aotforge.errors import VerifyError


def report_json(report: DemoReport) -> str:
    """JSON; an error that is not finite is null."""
    fields = asdict(report)
    fields["passed"] = report.passed
    for shown, result in zip(fields["results"], report.results, strict=True):
        shown["passed"] = result.passed
        shown["problem"].pop("layout")
        for output in shown["outputs"]:
            for name in ("largest_error", "of_bound"):
                output[name] = output[name] if math.isfinite(output[name]) else None
    return json.dumps(fields, indent=1, allow_nan=False)


def require_passed(report: DemoReport) -> None:
    """Raises VerifyError when an output is outside of its bound."""
    wrong = [
        f"{result.arch} {output.name} ({output.of_bound:.3g} times its bound)"
        for result in report.results
        for output in result.outputs
        if output.of_bound > 1
    ]
    if wrong:
        raise VerifyError(
            f"the release computes something else than attention: {', '.join(wrong)}",
            cause="an image, the library or the virtual GPU is wrong",
            hint="invoke verify, for the same chip and profile, tries every image alone",
        )


def report_text(report: DemoReport) -> str:
    """A table per call."""
    lines = [f"release {report.release}: {', '.join(report.tarballs)}"]
    for result in report.results:
        lines += ["", *_call(result)]
    lines.append("")
    lines.append(
        "everything is within the bounds of its rounding"
        if report.passed
        else "SOMETHING IS WRONG: see above"
    )
    return "\n".join(lines)


def _call(result: Result) -> list[str]:
    p = result.problem
    mask = "full" if p.window_right is None else "causal"
    lines = [
        f"virtual {result.arch}: {mask} attention, {p.dtype}, batch {p.batch}, heads {p.heads_q}/{p.heads_k}, "
        f"{p.seqlen_q} queries, {p.seqlen_k} keys, head_dim {p.head_dim}: "
        f"forward {result.forward_seconds:.2f} s, backward {result.backward_seconds:.2f} s "
        f"({result.preparing_seconds:.2f} s of it preparing images)",
        f"  {'output':8} {'max error':>10} {'max value':>10} {'of bound':>9}",
    ]
    lines += [
        f"  {o.name:8} {o.largest_error:10.2e} {o.largest_value:10.2e} {o.of_bound:9.3f}"
        for o in result.outputs
    ]
    lines += [
        f"  {kernel:16} image {digest[:12]}  {instructions:>10} wave-instructions  {seconds:.2f} s"
        for kernel, digest, instructions, seconds in result.served
    ]
    return lines
