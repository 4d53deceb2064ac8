"""The front door: each task reads its flags, calls one function and prints. No logic lives here.

A module's `TASKS` lists (group or "", name, task).
"""

from __future__ import annotations

import sys
from pathlib import Path

from invoke.collection import Collection

if (_root := str(Path(__file__).resolve().parents[1])) not in sys.path:
    sys.path.insert(0, _root)

# one a line, in the order of `invoke --list`'s groups
from tasks import (
    building,
    checks,
    ci,
    compat,
    containers,
    dl,
    executors,
    images,
    publishing,
    releasing,
    source,
    tools,
)

namespace = Collection()
for _module in (
    building,
    releasing,
    publishing,
    images,
    containers,
    executors,
    ci,
    tools,
    compat,
    dl,
    source,
    checks,
):
    for _group, _name, _task in _module.TASKS:
        if _group and _group not in namespace.collections:
            namespace.add_collection(Collection(_group))
        (namespace.collections[_group] if _group else namespace).add_task(_task, name=_name)
