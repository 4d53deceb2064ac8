"""The demo: attention forward and backward computed by a release's tarballs on virtual devices, compared with float64."""

from aotforge.demo.run import DemoReport, OutputError64, Result, run_demo
from aotforge.demo.show import report_json, report_text

__all__ = ["DemoReport", "OutputError64", "Result", "report_json", "report_text", "run_demo"]
