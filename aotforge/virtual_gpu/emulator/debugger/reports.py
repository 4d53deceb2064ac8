"""Stops that nobody answers: what was asked for is shown, and the launch goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from aotforge.virtual_gpu.emulator.debugger.places import Map
from aotforge.virtual_gpu.emulator.debugger.session import Resume, Stop, place_text, sight
from aotforge.virtual_gpu.emulator.debugger.views import parse_views, show
from aotforge.virtual_gpu.interpreter.memory import Memory


class Reporter:
    """Writes place and views of every stop; `stopped` is a session's `on_stop`. Raises what `show` raises, which ends the launch."""

    def __init__(
        self,
        where: Map,
        memory: Memory,
        arguments: Mapping[str, int | float],
        *,
        views: str,
        out: TextIO,
        lanes: Sequence[int] | None = None,
    ) -> None:
        self._where, self._memory, self._arguments = where, memory, arguments
        self._views, self._out, self._lanes = parse_views(views), out, lanes

    def stopped(self, stop: Stop) -> Resume:
        """Show and go on."""
        view = sight(stop, self._where, self._memory, self._arguments, lanes=self._lanes)
        lines = [place_text(stop, self._where)]
        for one in self._views:
            lines += show(one, view)
        self._out.write("\n".join(lines) + "\n")
        return Resume()
