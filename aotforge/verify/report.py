"""Report of a verification: JSON, lines of text, an HTML page, or an error."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from aotforge.errors import VerifyError, listed
from aotforge.verify.compare import SAME_PRECISION_FACTOR, TILE_SCALE
from aotforge.verify.verdict import UNREACHED, Faithfulness, Verdict
from vgpu.emulator.classes import InstructionClass

_LISTED = 20
_COLOURS = {
    InstructionClass.MATRIX: "#7b3294",
    InstructionClass.VALU: "#2b83ba",
    InstructionClass.SALU: "#9ecae1",
    InstructionClass.LDS: "#1a9641",
    InstructionClass.MEMORY: "#e08214",
    InstructionClass.SCALAR_MEMORY: "#fdb863",
    InstructionClass.CONTROL: "#969696",
    InstructionClass.OTHER: "#d9d9d9",
}


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Verdicts in the plan's order of jobs."""

    pack: str
    archs: tuple[str, ...]
    profile: str
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def counts(self) -> Counter[str]:
        """Images by outcome."""
        return Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def totals(self) -> dict[str, Any]:
        """Sums over all images: `outcomes` and `faithfulness` as text, `runs`, `instructions`, `cached`."""
        names = ("runs", "instructions", "cached")
        sums = {name: sum(getattr(verdict, name) for verdict in self.verdicts) for name in names}
        shown = (f"{self.counts[o]} {o}" for o in ("passed", "failed", "unverified") if self.counts[o])
        kinds = Counter(verdict.faithfulness for verdict in self.verdicts)
        return {
            **sums,
            "outcomes": ", ".join(shown),
            "faithfulness": ", ".join(
                f"{kinds[kind]} {kind}" for kind in get_args(Faithfulness) if kinds[kind]
            ),
        }

    def fields(self) -> dict[str, Any]:
        """For JSON, with None for infinite numbers and the largest ratio of each image as `worst`."""
        fields = asdict(self) | {"counts": dict(self.counts)}
        for verdict, shown in zip(self.verdicts, fields["verdicts"], strict=True):
            shown |= {"worst": verdict.worst, "mix": dict(verdict.mix)}
            shown |= {"faithfulness": verdict.faithfulness, "approximated": dict(verdict.approximated)}
        return finite(fields)  # type: ignore[no-any-return]

    def lines(self) -> list[str]:
        """Printed texts, a line per kernel with passed images, each failure once, and a summary."""
        totals = self.totals
        return [
            *self._printed_lines(),
            *self._passed_lines(),
            *self._failed_lines(),
            f"{len(self.verdicts)} images of {self.pack}, profile {self.profile}: {totals['outcomes']} "
            f"({totals['cached']} known before); {totals['faithfulness']}; {totals['runs']} launches, "
            f"{totals['instructions'] / 1e6:.1f} million wave-instructions, {self.seconds:.1f} s",
        ]

    def _printed_lines(self) -> Iterator[str]:
        for v in self.verdicts:
            if v.texts:
                more = f"\n    and {v.texts - len(v.printed)} more texts" if v.texts > len(v.printed) else ""
                yield f"printed     {v.label}:\n    " + "\n    ".join(v.printed) + more

    def _passed_lines(self) -> Iterator[str]:
        passed: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts:
            if verdict.outcome == "passed":
                passed.setdefault(verdict.label.partition(":")[0], []).append(verdict)
        for kernel, found in passed.items():
            shares = ", ".join(
                f"{name} {max(getattr(one, field) for v in found for one in v.outputs):.0%}"
                for name, field in (("error", "tensor"), ("element", "element"), ("tile", "tile"))
                if any(v.outputs for v in found)
            )
            largest = f"; largest {shares} of the bound" if shares else ""
            launches = sum(v.runs for v in found)
            yield f"passed      {kernel}: {_images(len(found))}, {launches} launches{largest}"
            reasons: dict[str, set[str]] = {}
            for name, why in (pair for v in found for pair in v.approximated):
                reasons.setdefault(why, set()).add(name)
            names = "; ".join(f"{listed(sorted(named), 3)} ({why})" for why, named in sorted(reasons.items()))
            if names:
                yield f"approximate {kernel}: {names}"

    def _failed_lines(self) -> Iterator[str]:
        """Images with the same failure together."""
        failed: dict[tuple[str, str, str], list[str]] = {}
        for v in self.verdicts:
            if v.outcome != "passed":
                what = " not supported by the virtual GPU:" if v.unsupported else ""
                failed.setdefault((v.outcome, what, v.failure or UNREACHED), []).append(v.label)
        for (outcome, what, failure), labels in failed.items():
            text = failure.replace("\n", "\n    ")
            yield f"{outcome:10}  {listed(labels, 3)}:{what}\n    {text}"

    def html(self) -> str:
        """A page without scripts, fonts or links; the same text for the same report."""
        from aotforge.base.html import render  # noqa: PLC0415 - jinja2: 50 ms of every build, for --html only

        return render(
            "verify_report.html", report=self, totals=self.totals, unreached=UNREACHED,
                factor=SAME_PRECISION_FACTOR, tile_scale=TILE_SCALE,
            classes={kind.value: kind.label for kind in InstructionClass}, colours=_COLOURS,
                ratio=lambda x: f"{x:.2f}" if math.isfinite(x) else "∞",
        )  # fmt: skip

    def require_passed(self, *, described: bool = False) -> None:
        """Raises VerifyError with failed and unverified images, their number if they were `described`."""
        failed = [v for v in self.verdicts if v.outcome == "failed"]
        unverified = [v for v in self.verdicts if v.outcome == "unverified" and not v.skipped]
        if not failed and not unverified:
            return
        entries = [] if described else list(self._failed_lines())
        if len(entries) > _LISTED:
            entries[_LISTED:] = [f"... and {len(entries) - _LISTED} more"]
        unsupported = sum(v.unsupported for v in failed)
        if failed and unsupported == len(failed):
            cause = "the images use something that is not supported by the virtual GPU; they may be correct"
            hint = "docs/virtual-gpu.md lists what it does not execute"
        elif failed:
            others = f"; {_images(unsupported)} of these are not supported by the virtual GPU"
            cause = "an image computes something else than its reference, or accesses what it must not"
            cause += others if unsupported else ""
            hint = "run the kernel's source on the same case (`./dev debug`); docs/virtual-gpu-tools.md"
        elif any(v.failure for v in unverified):
            cause = "nothing on this machine executes these images"
            hint = "--device, on a machine that has the GPU; for processors, a machine that has the level"
        else:
            cause = "the family has no cases.py, or none of its cases is dispatched to the image"
            hint = "add cases to kernels/<family>/cases.py"
        total = f"{len(failed)} of {len(self.verdicts)} images failed, {len(unverified)} are unverified"
        raise VerifyError("\n".join([total, *entries]), cause=cause, hint=hint)


def joined_report(reports: Sequence[VerifyReport]) -> VerifyReport:
    """One report of several packs (at least one), one after another."""
    return VerifyReport(
        pack=", ".join(report.pack for report in reports),
        archs=tuple(arch for report in reports for arch in report.archs),
        profile=", ".join(dict.fromkeys(report.profile for report in reports)),
        verdicts=tuple(verdict for report in reports for verdict in report.verdicts),
        seconds=sum(report.seconds for report in reports),
    )


def finite(value: object) -> Any:
    """A JSON value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _images(count: int) -> str:
    return f"{count} image{'' if count == 1 else 's'}"
