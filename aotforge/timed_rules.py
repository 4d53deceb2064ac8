"""Settings found by timing on hardware, apart from rules.py on which verdicts depend."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.rules import Setting


@dataclass(frozen=True, kw_only=True)
class TimedSetting(Setting):
    """A setting whose reason is a measured time.

    `source`: a file beside rules.py whose function of the kernel's name and arguments is compiled instead of
    the kernel's.
    `spills`: its images may spill where `Kernel.limits` rejects that: timed on hardware, they are faster than
    those that do not.
    """

    source: str = ""
    spills: bool = False
