"""Tasks of `./dev TASK` and `invoke TASK`, collected from `aotforge/cli/`."""

import gc
import os
import sys

from aotforge.cli import (  # noqa: F401 - importing a module registers its tasks
    build,
    conformance,
    deliver,
    developer,
    hardware,
    images,
    kernels,
    publish,
)
from aotforge.cli.flags import namespace as collect
from aotforge.cli.program import main

# imports and plans make many objects and no garbage: collecting takes 60 ms of a no-op build
gc.set_threshold(50_000)
# no other package's plugin takes part in validation, and looking for them reads the metadata of every package
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

namespace = collect()

if __name__ == "__main__":
    main(namespace, sys.argv[1:])
