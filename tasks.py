"""Tasks of `./dev TASK` and `invoke TASK`, collected from `aotforge/cli/`."""

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
    upstream,
)
from aotforge.cli.flags import namespace as collect
from aotforge.cli.program import main

namespace = collect()

if __name__ == "__main__":
    main(namespace, sys.argv[1:])
