"""The command line: tasks and the programs that run them.

Input: words. Output: results on standard output, messages on standard error, an exit code.
"""

import sys
from types import SimpleNamespace

if "unittest.mock" not in sys.modules:
    # invoke imports it for a class that serves tests: with asyncio and ssl a fifth of `./dev --list`
    sys.modules["unittest.mock"] = SimpleNamespace(Mock=None)  # type: ignore[assignment]
    import invoke  # noqa: F401

    del sys.modules["unittest.mock"]
