"""Tasks of `./dev TASK`, collected from `aotforge/cli/`."""

import gc

from invoke.collection import Collection

from aotforge.cli import (  # noqa: F401 - importing a module registers its tasks
    build,
    ci_jobs,
    conformance,
    deliver,
    developer,
    devtools,
    publish,
    release,
    rootfs,
)
from aotforge.cli.command import TASKS

gc.set_threshold(
    50_000
)  # imports and plans make many objects and no garbage: collecting takes 60 ms of a no-op build

namespace = Collection()
for _path, _task in TASKS.items():
    _group, _, _name = _path.rpartition(".")
    if _group and _group not in namespace.collections:
        namespace.add_collection(Collection(_group))
    (namespace.collections[_group] if _group else namespace).add_task(_task, name=_name)
