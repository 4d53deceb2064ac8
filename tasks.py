"""Tasks of `invoke` (`./dev TASK`), collected from `aotforge/cli/`."""

from invoke.collection import Collection

from aotforge.cli import (
    build,
    ci_jobs,
    conformance,
    developer,
    devtools,
    packs,
    publish,
    release,
    rootfs,
    sandbox,
    source_route,
    windows_dl,
)

_MODULES = (
    build,
    release,
    publish,
    packs,
    rootfs,
    sandbox,
    ci_jobs,
    devtools,
    conformance,
    windows_dl,
    source_route,
    developer,
)  # the order of `invoke --list`

namespace = Collection()
for _module in _MODULES:
    for _group, _name, _task in _module.TASKS:
        if _group and _group not in namespace.collections:
            namespace.add_collection(Collection(_group))
        (namespace.collections[_group] if _group else namespace).add_task(_task, name=_name)
