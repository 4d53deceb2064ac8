"""What people see of a build, and how values are shown on a line."""

from __future__ import annotations

from dataclasses import asdict
from types import TracebackType

from aotforge.compile.events import CompileEvent
from aotforge.pack.values import PackedImage
from aotforge.ui.progress import Progress, progress

_NOTED = {"damaged", "retry", "failed"}


class BuildDisplay:
    """Stages and compile events of one build, on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress: Progress = progress("compiling", quiet=quiet)

    def __enter__(self) -> BuildDisplay:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def stage(self, name: str) -> None:
        """A room begins."""
        self._progress.note(f"-- {name}")

    def event(self, event: CompileEvent) -> None:
        """News of a compile job; what went well only moves the bar."""
        if event.kind in _NOTED:
            self._progress.note(f"{event.kind}: {event.label}: {event.detail}")
        self._progress.update(event.done, event.total)


def build_display(*, quiet: bool) -> BuildDisplay:
    """A display for one build; nothing but errors when `quiet`."""
    return BuildDisplay(quiet=quiet)


def image_fields(image: PackedImage) -> dict[str, object]:
    """A row of `images.ls --json`."""
    return asdict(image) | {"key": dict(image.key)}


def image_line(image: PackedImage) -> str:
    """A row of `images.ls`: digest, sizes, kernel, and the calls that the image serves."""
    key = " ".join(f"{name}={number}" for name, number in image.key)
    when = ", ".join(
        f"{p.value} % {p.low} = 0" if p.kind == "multiple" else f"{p.low} <= {p.value} <= {p.high}"
        for p in image.predicates
    )
    sizes = f"{image.size:>7,} {image.stored:>7,}"
    return f"{image.digest[:16]} {sizes}  {image.kernel} {image.arch} {key} [{image.tried}] {when}".rstrip()
