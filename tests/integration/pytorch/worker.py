"""A process in which PyTorch is the reference and the library under test: cases as JSON on standard input,
results on standard output.

A line with `word` is a call of variable length that is compared with dense ones (words.py), at the newest
level.

python -m tests.integration.pytorch.worker DEVICE LEVEL=CALLS ... (libraries of tests/fixtures/pytorch)
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from .compare import Measured, as_json, results
from .device import LibraryError, load_libraries
from .functions import Level
from .grids import LEVELS, case_of, minor_of
from .words import differences


def main() -> None:
    hip = ctypes.CDLL("libamdhip64.so.7")
    libraries = load_libraries(hip, sys.argv[1], sys.argv[2:])
    levels = {name: Level(minor=minor_of(name), library=library) for name, library in libraries.items()}
    for line in sys.stdin:
        values = json.loads(line)
        if "word" in values:
            _write({**values, "differences": differences(levels[LEVELS[-1]], **values)})
            continue
        case = case_of(values)
        started = time.process_time()
        try:
            measured = results(case, levels[case.level])
        except LibraryError as error:  # a case that fails, among others
            sys.stderr.write(f"{case.name()}: {error}\n")
            measured = [Measured(name="call", error=math.nan, reference_error=0.0, limit=0.0)]
        _write(as_json(case, measured, time.process_time() - started))


def _write(values: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
