"""The command line: tasks and the programs that run them.

Input: words. Output: results on standard output, messages on standard error, an exit code.
"""

import gc
import os
import sys
from types import SimpleNamespace

# imports and plans make many objects and no garbage: collecting takes 60 ms of a no-op build
gc.set_threshold(50_000)
# no other package's plugin takes part in validation, and looking for them reads the metadata of every package
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
if "unittest.mock" not in sys.modules:
    # invoke imports it for a class that serves tests: with asyncio and ssl a fifth of `./dev --list`
    sys.modules["unittest.mock"] = SimpleNamespace(Mock=None)  # type: ignore[assignment]
    import invoke  # noqa: F401

    del sys.modules["unittest.mock"]
