"""The matrix as a gate for others: what may be dropped in, what may be built, and what that PyTorch's build understands."""

from __future__ import annotations

from collections.abc import Sequence

from aotforge.compat.matrix import Compatibility
from aotforge.compat.models import Row, version_key
from aotforge.errors import CompatError, UnknownNameError

_URL_SINCE = "0.12b"
"""PyTorch releases that pin this or a later one read PYTORCH_AOTRITON_BASE_URL."""


def check_drop_in(compat: Compatibility, *, pytorch: str, needed: Sequence[str]) -> None:
    """Whether our release may take the place of the libraries that an installed PyTorch needs (names as its loader asks for them).

    `pytorch` is its version, "" when nothing tells. A wheel does not say whose it is, so upstream's row or the fork's must allow it; a
    version that the matrix does not know, or has not established, is judged by the names alone. Raises CompatError.
    """
    strange = [name for name in needed if name not in compat.names]
    if strange:
        raise CompatError(
            f"PyTorch {pytorch or 'of unknown version'} needs {', '.join(strange)}, {compat.api} serves {', '.join(compat.names)}",
            cause="it was built with another feature release of AOTriton, whose interface differs",
            hint=_HINT,
        )
    rows = _rows(compat, pytorch)
    if not rows or any(row.status == "not-established" for row in rows):
        return
    if not any(set(needed) <= set(compat.service(row).links) for row in rows):
        reasons = "; ".join(
            f"{row.name}: {compat.service(row).reason or _other_links(compat, row)}" for row in rows
        )
        raise CompatError(
            f"the matrix does not allow {compat.api} in PyTorch {pytorch} that needs {', '.join(needed)}",
            cause=reasons,
            hint=_HINT,
        )


def check_build(compat: Compatibility, *, pytorch: str, fork: bool = False) -> Row:
    """The row of a PyTorch whose sources may be built with our release. Raises CompatError with the reason, UnknownNameError."""
    row = compat.find(pytorch, fork=fork)
    service = compat.service(row)
    if not service.build:
        raise CompatError(
            f"PyTorch {pytorch} cannot be built with {compat.api}", cause=service.reason, hint=_HINT
        )
    return row


def reads_base_url(row: Row) -> bool:
    """That PyTorch's CMake takes the download address from PYTORCH_AOTRITON_BASE_URL (an older one has it in the file)."""
    return any(version_key(pin) >= version_key(_URL_SINCE) for pin in row.releases("pins"))


def _rows(compat: Compatibility, pytorch: str) -> list[Row]:
    found = []
    for fork in (False, True):
        try:
            found.append(compat.find(pytorch, fork=fork))
        except UnknownNameError:
            continue
    return found


def _other_links(compat: Compatibility, row: Row) -> str:
    return f"such a PyTorch needs {' or '.join(compat.service(row).links)}"


_HINT = "`./dev compat.which --pytorch VERSION --arch CHIP` says what to install"
