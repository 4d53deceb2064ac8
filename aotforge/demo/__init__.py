"""The demo: attention forward and backward computed by a release's tarballs on virtual devices, compared with float64."""

from aotforge.demo.request import DemoRequest, demo
from aotforge.demo.run import run_demo
from aotforge.demo.show import report_json, report_text, require_right
from aotforge.demo.values import DemoReport, Result

__all__ = [
    "DemoReport",
    "DemoRequest",
    "Result",
    "demo",
    "report_json",
    "report_text",
    "require_right",
    "run_demo",
]
