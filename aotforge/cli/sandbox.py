"""What executors leave behind when they are killed, taken away by hand; every build does the same for its executor when it starts."""

from __future__ import annotations

import json as json_

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import JSON, cache_folder, door, say


@task(
    help={
        "kept": "also what --keep has left, unless its build still runs",
        "cache": "cache folder of the builds (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
    }
)
@door
def reap(c: Context, kept: bool = False, cache: str | None = None, json: bool = False) -> None:
    """Remove containers, control groups and work folders of builds that were killed."""
    from aotforge.sandbox.executors.choose import reap_all  # noqa: PLC0415

    removed = reap_all(cache=cache_folder(cache), kept=kept)
    if json:
        say(json_.dumps(removed, indent=1))
        return
    for executor, names in removed.items():
        say(f"{executor}: {', '.join(names) or 'nothing to remove'}")


TASKS = (("containers", "reap", reap),)
"""Group, name and task; aotforge/cli/__init__.py makes the front door of them."""
