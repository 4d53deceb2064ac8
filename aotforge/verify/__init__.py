"""The verify room: every image of a plan executed on the virtual GPU and compared with its family's float64 reference.

`trial` is what families say in cases.py, on `tensors` and `bounds`; `dispatch` finds the calls that lead to an image, `judge`
runs them in a `worker` of the `pool`, `store` keeps what passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.verify.html import report_html
    from aotforge.verify.report import joined_report, report_json, report_text, require_passed
    from aotforge.verify.run import verify_images
    from aotforge.verify.values import Verdict, VerifyEvent, VerifyReport

__all__ = [
    "Verdict",
    "VerifyEvent",
    "VerifyReport",
    "joined_report",
    "report_html",
    "report_json",
    "report_text",
    "require_passed",
    "verify_images",
]

_HOMES = {
    "Verdict": "aotforge.verify.values",
    "VerifyEvent": "aotforge.verify.values",
    "VerifyReport": "aotforge.verify.values",
    "joined_report": "aotforge.verify.report",
    "report_html": "aotforge.verify.html",
    "report_json": "aotforge.verify.report",
    "report_text": "aotforge.verify.report",
    "require_passed": "aotforge.verify.report",
    "verify_images": "aotforge.verify.run",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
