"""Errors that users of the back end meet: what failed, the likely cause, the next step."""


class TtcpuError(Exception):
    """Base of these errors."""

    def __init__(self, what: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        parts = (
            self.what,
            self.cause and f"Likely cause: {self.cause}",
            self.hint and f"Next step: {self.hint}",
        )
        return "\n".join(filter(None, parts))


class UnsupportedError(TtcpuError):
    """Something that the back end, or this processor, does not have."""


class CompileError(TtcpuError):
    """IR that cannot be read, or that LLVM refuses."""
