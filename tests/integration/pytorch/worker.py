"""A process in which PyTorch is the reference and the library under test: cases as JSON on standard input, results on standard output.

python -m tests.integration.pytorch.worker LEVEL=BRIDGE ...
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

from .compare import as_json, results
from .device import Library
from .functions import Level
from .grids import case_of


def main() -> None:
    hip = ctypes.CDLL("libamdhip64.so.7")
    levels = {}
    for word in sys.argv[1:]:
        name, bridge = word.split("=", 1)
        levels[name] = Level(minor=int(name.split(".")[1].rstrip("b")), library=Library(hip, Path(bridge)))
        levels[name].library.check_gpu()
    for line in sys.stdin:
        case = case_of(json.loads(line))
        started = time.process_time()
        measured = results(case, levels[case.level])
        sys.stdout.write(json.dumps(as_json(case, measured, time.process_time() - started)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
