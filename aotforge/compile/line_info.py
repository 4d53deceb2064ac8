"""The same job with line info: compiled again to find out which source line an instruction comes from, never to be shipped.

Such an image names the folder of its sources, so it is checked against nothing but its own machine code (`aotforge.verify.source_map`).
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from aotforge.plan.model import CompileJob

_SWITCH = "TRITON_DISABLE_LINE_INFO"


def with_line_info(job: CompileJob) -> CompileJob:
    """The job under a key of its own, so that no cache gives its image for the shipped one."""
    environment = tuple((name, value) for name, value in job.toolchain.environment if name != _SWITCH)
    return replace(
        job,
        key=hashlib.sha256(f"{job.key} with line info".encode()).hexdigest(),
        toolchain=replace(job.toolchain, environment=(*environment, (_SWITCH, "0"))),
    )


def has_line_info(job: CompileJob) -> bool:
    """Whether the job was made by `with_line_info`."""
    return dict(job.toolchain.environment).get(_SWITCH) == "0"
