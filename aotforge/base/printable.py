"""Text for terminals and logs, possibly of others: without control characters."""

import re

_UNSAFE = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff"  # invisible, which comparisons may ignore; line separators, direction of writing
    "\ud800-\udfff]"  # undecodable bytes of file names
)
_ESCAPED = re.compile(_UNSAFE)
_STYLED = re.compile(rf"\x1b\[(?:0|1|2|3[1-6])m|{_UNSAFE}")


def printable(text: str, *, styled: bool = False) -> str:
    """`text` with `\\x1b` etc. for control characters but, with `styled`, this program's colours."""
    pattern = _STYLED if styled else _ESCAPED

    def shown(found: re.Match[str]) -> str:
        return found[0] if len(found[0]) > 1 else found[0].encode("unicode_escape").decode("ascii")

    return pattern.sub(shown, text)
