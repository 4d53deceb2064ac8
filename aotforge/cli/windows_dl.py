"""dl for Windows, and further names for a Windows library."""

from __future__ import annotations

import json as json_
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import JSON, ROOT, cache_folder, door, say


@task(
    help={
        "output": "folder for lib/ and include/ (replaced in one step)",
        "cache": "folder that keeps a fetched dlfcn-win32 (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
    }
)
@door
def build(c: Context, output: str, cache: str | None = None, json: bool = False) -> None:
    """Build dl.dll with its import libraries, libdl.a and dlfcn.h, from the sources that manifests/dl.yaml chooses."""
    from aotforge.library.dl import build_dl  # noqa: PLC0415

    built = build_dl(ROOT, output=Path(output), cache=cache_folder(cache))
    if json:
        say(
            json_.dumps(
                {"source": built.source, "folder": str(built.folder), "sha256": dict(built.digests)}, indent=1
            )
        )
        return
    say(f"{built.source} in {built.folder}:")
    for name, digest in built.digests:
        say(f"  {digest}  {name}")


@task(
    help={
        "library": "the .dll that holds code and state",
        "name": "the further name, a .dll",
        "output": "folder for the forwarder and its import libraries (default: the library's)",
        "json": JSON,
    }
)
@door
def forward(c: Context, library: str, name: str, output: str | None = None, json: bool = False) -> None:
    """Make a .dll of another name that leads every call to LIBRARY, so that both names share one state."""
    from aotforge.library.forwarder import build_forwarder  # noqa: PLC0415

    source = Path(library)
    made = build_forwarder(source, name=name, output=Path(output) if output else source.parent)
    files = [str(made.module), str(made.msvc), str(made.gnu)]
    say(json_.dumps({"files": files, "names": len(made.names)}) if json else "\n".join(files))


TASKS = (("dl", "build", build), ("dl", "forward", forward))
