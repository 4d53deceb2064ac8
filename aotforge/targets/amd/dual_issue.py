"""Dual-issue pairs (VOPD) that hazards forbid, split into two instructions in the assembly text."""

import re
from collections.abc import Collection

PARITY, AFTER_DPP = "dual-issue-parity", "dual-issue-after-dpp"
_PAIR = re.compile(
    r"^\t(v_dual_\w+)[ \t]+(.*?)[ \t]*::[ \t]*(v_dual_\w+)[ \t]+(.*?)[ \t]*(;.*)?$", re.MULTILINE
)
_REGISTER = re.compile(r"v(\d+)$")
_DPP = re.compile(r"^\t(?:v_\w+_dpp|v_permlane\w+) v\[?(\d+)(?::(\d+))?", re.MULTILINE)
_ACCUMULATES = re.compile(r"v_dual_(fmac|dot2acc)_")
_CONDITION = "v_dual_cndmask_b32"


def split_pairs(text: str, hazards: Collection[str]) -> str:
    """The text without dual-issue pairs that have one of the hazards. Everything else stays as it is.

    For `AFTER_DPP` every pair that reads a register which some DPP instruction of the text writes is split:
    this needs no analysis of control flow, and such registers are few.
    """
    if PARITY not in hazards and AFTER_DPP not in hazards:
        return text
    crossed = _dpp_results(text) if AFTER_DPP in hazards else frozenset()

    def replaced(match: re.Match[str]) -> str:
        first, second = (match[1], _operands(match[2])), (match[3], _operands(match[4]))
        unsafe = PARITY in hazards and _same_parity(_sources(*first), _sources(*second))
        if unsafe or crossed & (_reads(*first) | _reads(*second)):
            return _separate(first, second)
        return match[0]

    return _PAIR.sub(replaced, text)


def _operands(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _dpp_results(text: str) -> frozenset[int]:
    found = (range(int(m[1]), int(m[2] or m[1]) + 1) for m in _DPP.finditer(text))
    return frozenset(register for span in found for register in span)


def _vgpr(operand: str) -> int | None:
    match = _REGISTER.match(operand)
    return int(match[1]) if match else None


def _sources(name: str, operands: list[str]) -> list[str]:
    """The first and the second source; `fmamk` has its constant between them."""
    return [operands[1], operands[3]] if name.startswith("v_dual_fmamk") else operands[1:3]


def _same_parity(first: list[str], second: list[str]) -> bool:
    """Whether sources in the same position are VGPRs that are both even or both odd."""
    pairs = ((_vgpr(one), _vgpr(other)) for one, other in zip(first, second, strict=False))
    return any(a is not None and b is not None and a % 2 == b % 2 for a, b in pairs)


def _reads(name: str, operands: list[str]) -> set[int]:
    """VGPRs that one half of a pair reads; `fmac` and `dot2acc` read their result's."""
    sources = operands if _ACCUMULATES.match(name) else operands[1:]
    return {register for one in sources if (register := _vgpr(one)) is not None}


def _separate(first: tuple[str, list[str]], second: tuple[str, list[str]]) -> str:
    """Both read before either writes, so the one whose result the other reads comes last."""
    if _vgpr(first[1][0]) in _reads(*second):
        if _vgpr(second[1][0]) in _reads(*first):
            raise ValueError(f"{first} and {second} read each other's results: cannot be split")
        first, second = second, first
    return "\n".join(_single(*one) for one in (first, second))


def _single(name: str, operands: list[str]) -> str:
    condition = ["vcc_lo"] if name == _CONDITION and len(operands) == 3 else []
    return f"\t{name.replace('v_dual_', 'v_')} {', '.join([*operands, *condition])}"
