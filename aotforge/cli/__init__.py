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
# invoke imports these for its tests and its own version; with asyncio and email, a third of `./dev --list`
_STUBS = {
    "unittest.mock": SimpleNamespace(Mock=None),
    "importlib.metadata": SimpleNamespace(version=lambda distribution: ""),
}
_stubbed = {name: stub for name, stub in _STUBS.items() if name not in sys.modules}
sys.modules.update(_stubbed)  # type: ignore[arg-type]
import invoke  # noqa: E402, F401

for _name in _stubbed:
    del sys.modules[_name]
