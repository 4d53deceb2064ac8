"""Waits for stores to LDS that LLVM drops before barriers, put back in the assembly text."""

import re
from collections.abc import Collection

LDS = "shared-store-before-barrier"
_WAITS = re.compile(r"s_waitcnt\s.*\blgkmcnt\(0\)")
_WAIT = "\ts_waitcnt lgkmcnt(0)"


def wait_at_barriers(text: str, hazards: Collection[str]) -> str:
    """The text with a wait at each `s_barrier` before which its block waits for no access to LDS.

    A block that has none itself gets a wait as well: what is outstanding on the ways to it is not followed.
    """
    if LDS not in hazards:
        return text
    lines: list[str] = []
    waited = False
    for line in text.splitlines(keepends=True):
        instruction = line.strip()
        if instruction == "s_barrier" and not waited:
            lines.append(f"{_WAIT}\n")
            waited = True
        elif _WAITS.match(instruction):
            waited = True
        elif instruction.startswith("ds_") or instruction.partition(";")[0].rstrip().endswith(":"):
            waited = False
        lines.append(line)
    return "".join(lines)
