"""Coverage of calls, from a log of the library, by the image packs of a release."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import read_bytes
from aotforge.base.general_costs import general_costs
from aotforge.errors import UsageError
from aotforge.pack.coverage import MASKS, PackCoverage, is_general
from aotforge.pack.model import DispatchChoice, DispatchFunctional, DispatchKernel, DispatchTable
from aotforge.pack.reader import OpenPack
from aotforge.rules import DTYPE_NUMBERS

_LOGGED = re.compile(r"\bcall (?P<operator>\w+) on (?P<arch>gfx[0-9a-f]+):(?P<values>( \w+=-?[0-9]{1,20})*)$")
_REFUSED = re.compile(r"^aotriton: warn: (?P<function>[\w ]+): (?P<what>[\w, ()]+): (?P<reason>.+)$")
_NON_NEUTRAL = ("varlen_bits", "lse_packed")
"""Values that some kernel must use when they are not 0, and are not keys."""

_REASON = 400
"""Characters of a reason at most: it names the keys of a pack anew for each call and arch."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The integers of an operator's call, sorted by name; those that are not listed are 0. `arch` is empty
    when it is any."""

    operator: str
    arch: str = ""
    values: tuple[tuple[str, int], ...]

    def text(self) -> str:
        """For people."""
        return " ".join([self.operator, *(f"{name}={number}" for name, number in self.values)])


@dataclass(frozen=True, kw_only=True)
class CallCoverage:
    """A call, how often it was made, and by arch the reason why no image serves it; empty when one does.

    `general`: archs on which general images serve it or a step of it; with the estimate of what that costs
    beside special images, as a multiple and the call that was estimated, or an empty text.
    """

    call: Call
    count: int
    reasons: tuple[tuple[str, str], ...]
    general: tuple[tuple[str, str], ...] = ()


def read_calls(path: Path) -> tuple[Counter[Call], Counter[str]]:
    """Calls and refusals of a program's log (AOTRITON_LOG=debug), without other lines. Raises UsageError."""
    hint = "name the log of a program that was run with AOTRITON_LOG=debug"
    text = read_bytes(path, UsageError, hint=hint).decode("utf-8", "replace")
    calls: Counter[Call] = Counter()
    refusals: Counter[str] = Counter()
    for line in text.splitlines():
        if logged := _LOGGED.search(line):
            words = (word.partition("=") for word in logged["values"].split())
            values = tuple(sorted((name, int(value)) for name, _, value in words))
            calls[Call(operator=logged["operator"], arch=logged["arch"], values=values)] += 1
        elif refused := _REFUSED.match(line):
            refusals[f"{refused['function']}: {refused['what']}: {refused['reason']}"] += 1
    return calls, refusals


def coverage(calls: Mapping[Call, int], packs: Sequence[OpenPack]) -> tuple[CallCoverage, ...]:
    """Every call against every arch of the packs, or its own; the most frequent first."""
    rows = []
    for call, count in sorted(calls.items(), key=lambda item: (-item[1], item[0].text(), item[0].arch)):
        served = [
            (arch, pack.dispatch) for pack in packs for arch in pack.dispatch.archs if call.arch in ("", arch)
        ]
        reasons = [(arch, reason_without_image(call, table, arch)) for arch, table in served]
        if call.arch and not reasons:
            reasons = [(call.arch, f"no pack serves {call.arch}")]
        general = [
            (arch, _estimated(call, arch))
            for arch, table in served
            if (arch, "") in reasons and _is_general(call, table, arch)
        ]
        row = CallCoverage(
            call=call, count=count, reasons=tuple(sorted(reasons)), general=tuple(sorted(general))
        )
        rows.append(row)
    return tuple(rows)


def _is_general(call: Call, table: DispatchTable, arch: str) -> bool:
    """Whether a general image serves a step of the call, which is served."""
    steps = (kernel for kernel in table.kernels if kernel.operator == call.operator)
    chosen = (_chosen(kernel, dict(call.values), arch) for kernel in steps)
    return any(choice is not None and is_general(choice) for choice in chosen)


def _chosen(kernel: DispatchKernel, values: Mapping[str, int], arch: str) -> DispatchChoice | None:
    """The first image whose conditions hold."""
    functional = _functional(kernel, values, arch)
    choices = functional.choices if functional else ()
    value = lambda name: values.get(name, 0)  # noqa: E731
    return next((choice for choice in choices if all(each.holds(value) for each in choice.predicates)), None)


def image_of(
    call: Call, kernel: DispatchKernel, arch: str
) -> tuple[DispatchFunctional, DispatchChoice] | None:
    """The functional and its first image whose conditions hold; None without one."""
    values = dict(call.values)
    functional, choice = _functional(kernel, values, arch), _chosen(kernel, values, arch)
    return (functional, choice) if functional and choice else None


def _estimated(call: Call, arch: str) -> str:
    """What general images cost beside special ones, for the estimated call that is most like this one."""
    values = dict(call.values)
    row = general_costs().nearest(
        arch,
        call.operator,
        dtype=next((name for name, number in DTYPE_NUMBERS.items() if number == values.get("dtype")), ""),
        mask=next((name for name, number in MASKS.items() if number == values.get("mask", 0)), ""),
        dropout=bool(values.get("dropout")),
        head_dim=values.get("width", 0),
    )
    return row.text() if row else ""


def reason_without_image(call: Call, table: DispatchTable, arch: str) -> str:
    """The reason why a pack has no image for the call on one of its archs; empty when it has."""
    steps = [kernel for kernel in table.kernels if kernel.operator == call.operator]
    if not steps:
        return f"the pack has no operator {call.operator}"
    values = dict(call.values)
    used = {name for kernel in steps for name in _used(kernel)}
    needed = [name for name in _NON_NEUTRAL if values.get(name)]
    if values.get("head_dim_v", 0) not in (0, values.get("head_dim", 0)):
        needed.append("head_dim_v")
    for name in needed:
        if name not in used:
            return f"no kernel of {call.operator} uses {name}, which is {values[name]}"
    return next(filter(None, (_kernel_reason(kernel, values, arch) for kernel in steps)), "")


def _kernel_reason(kernel: DispatchKernel, values: Mapping[str, int], arch: str) -> str:
    if _functional(kernel, values, arch) is None:
        key = ", ".join(f"{name} {values.get(name, 0)}" for name in kernel.keys)
        return f"{kernel.name} has no image for {key}"[:_REASON]
    choice = _chosen(kernel, values, arch)
    return "" if choice else f"{kernel.name} has images under conditions that do not hold"


def _functional(kernel: DispatchKernel, values: Mapping[str, int], arch: str) -> DispatchFunctional | None:
    wanted = tuple(values.get(name, 0) for name in kernel.keys)
    fixed = len(wanted) - kernel.ladder
    fitting = (
        f
        for f in kernel.functionals
        if f.arch == arch and f.key[:fixed] == wanted[:fixed] and f.key[fixed:] >= wanted[fixed:]
    )
    return min(fitting, key=lambda f: f.key, default=None)


def _used(kernel: DispatchKernel) -> Iterator[str]:
    yield from kernel.keys
    yield from (value for _, value in kernel.parameters)


def coverage_lines(
    packs: Iterable[PackCoverage], calls: Sequence[CallCoverage], refusals: Mapping[str, int]
) -> list[str]:
    """Lines of text."""
    lines = []
    for pack in packs:
        served = ", ".join(pack.gates) or "none: check_gpu fails without AOTFORGE_PARTIAL_PACK=1"
        lines.append(
            f"{pack.pack}: {pack.images} images, {pack.bytes:,} bytes; PyTorch's gates served: {served}"
        )
        lines += [f"  {kernel.kernel} on {kernel.arch}: {kernel.text()}" for kernel in pack.kernels]
    for row in calls:
        for arch, reason in row.reasons:
            state = f"no: {reason}" if reason else _how(arch, dict(row.general))
            lines.append(f"{row.count:>6} x {row.call.text()} on {arch}: {state}")
    lines += [f"{count:>6} x refused by the library: {text}" for text, count in sorted(refusals.items())]
    return lines


def _how(arch: str, general: Mapping[str, str]) -> str:
    if arch not in general:
        return "yes, special images"
    cost = general[arch] and f"; estimated cycles beside special ones, {general[arch]}"
    return f"yes, general images{cost}"
