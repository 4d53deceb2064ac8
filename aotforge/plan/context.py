"""One kernel of the rules while it is planned, and errors that name where in the rules they belong."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from aotforge.errors import RulesError
from aotforge.plan.signature import FunctionSignature
from aotforge.rules import Kernel, Operator, ValueType
from aotforge.toolchain.triton import Toolchain

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RulesLocation:
    """The rules file and the kernel in it that an error is about."""

    file: str
    kernel: str = ""

    def error(self, what: str, *, cause: str = "", hint: str = "") -> RulesError:
        """A RulesError that names this location."""
        kernel = f"kernel {self.kernel}: " if self.kernel else ""
        return RulesError(f"{self.file}: {kernel}{what}", cause=cause, hint=hint)

    def check_unique(self, what: str, names: Iterable[object]) -> None:
        """Raises RulesError for a name that occurs twice."""
        seen: set[object] = set()
        for name in names:
            if name in seen:
                raise self.error(f"{what} {name} is defined twice")
            seen.add(name)

    def run(self, what: str, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function of the rules. Rules may raise anything; it becomes a RulesError with their line."""
        try:
            return function(*arguments)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise self.error(
                f"{what} raises {type(error).__name__}: {error}",
                cause=f"{frame.filename}:{frame.lineno}: {frame.line}",
            ) from error


@dataclass(frozen=True, kw_only=True)
class KernelContext:
    """A kernel of a family with its operator (`types`: of its values by name), its function and source digest, and the compiler."""

    family: str
    kernel: Kernel
    operator: Operator
    types: dict[str, ValueType]
    source: str
    function: FunctionSignature
    source_digest: str
    toolchain: Toolchain
    toolchain_digest: str
    location: RulesLocation
