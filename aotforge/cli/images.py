"""Tasks that show image packs, caches, builds and settings."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from aotforge.base.child_processes import is_secret
from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Result
from aotforge.cli.settings import ROOT, VARIABLES, load_settings, project_facts
from aotforge.cli.values import Cache, absolute, cache_folder
from aotforge.errors import ExecutorError, OutputError, UnknownNameError, UnsupportedError, suggest

Pack = Annotated[str, "a folder below aotriton.images, a release folder, or a tarball of images"]


@command("images")
def images(
    pack: Pack,
    image: Annotated[str | None, "write this image instead: its SHA-256, or the first digits of it"] = None,
    output: Annotated[str | None, "with --image: file to write (default: standard output)"] = None,
) -> Report | None:
    """List the images of a pack and the calls that they serve, or write one image (an HSACO code object).

    ./dev images releases/dist/0.11.2b-r1
    ./dev images releases/dist/0.11.2b-r1 --image 0a1b2c3d --output image
    """
    from aotforge.base.files import write_atomic
    from aotforge.deliver.extract import open_packs
    from aotforge.pack.listing import cat_image, list_images, listing_fields, listing_lines

    listed = [(opened, list_images(opened)) for opened in open_packs(Path(pack).absolute())]
    if not image:
        every = [row for _, rows in listed for row in rows]
        return Result(listing_fields(every), listing_lines(every))
    holders = [opened for opened, rows in listed if any(row.digest.startswith(image.lower()) for row in rows)]
    data = cat_image((holders or [listed[0][0]])[0], image)
    if output:
        write_atomic(Path(output).absolute(), data)
    elif sys.stdout.isatty():
        raise OutputError("an image is binary and standard output is a terminal", hint="add --output FILE")
    else:
        sys.stdout.buffer.write(data)
    return None


@command("coverage")
def coverage(
    pack: Pack,
    calls: Annotated[str | None, "a log of a program (AOTRITON_LOG=debug)"] = None,
    model: Annotated[str | None, "instead the images that this config.json of a language model uses"] = None,
) -> Report:
    """The calls that image packs serve, and with --calls which of a program's calls have an image.

    ./dev coverage releases/dist/0.11.2b-r1 --calls attention.log
    ./dev coverage releases/dist/0.11.2b-r1 --model config.json
    """
    from aotforge.deliver.extract import open_packs
    from aotforge.devtools import coverage as tool
    from aotforge.pack.coverage import pack_coverage

    if model:
        from aotforge.devtools.model_coverage import model_coverage, read_model

        rows = model_coverage(read_model(Path(model).absolute()), open_packs(Path(pack).absolute()))
        return Result({"calls": [asdict(row) for row in rows]}, [row.text() for row in rows])
    made, refusals = tool.read_calls(Path(calls)) if calls else ({}, {})
    packs = open_packs(Path(pack).absolute())
    tables = [pack_coverage(opened) for opened in packs]
    served = tool.coverage(made, packs)
    fields = {
        "packs": [asdict(table) for table in tables],
        "calls": [asdict(call) for call in served],
        "refused": dict(refusals),
    }
    return Result(fields, tool.coverage_lines(tables, served, refusals))


@command("cache")
def cache(
    cache: Cache = None,
    prune: Annotated[float | None, "keep this many GiB: what was not used for longest goes"] = None,
    shared: Annotated[str | None, "also, or with --prune instead, this shared cache"] = None,
    cache_root: Annotated[str | None, "with --shared: its root of trust, a file"] = None,
    cache_keys: Annotated[str | None, "with --shared and --prune: folder of its keys"] = None,
) -> Report:
    """Sizes and use of a cache folder by kind, and of a shared cache; with --prune, bound them.

    Pruning also removes root filesystems that no lock names, and what killed builds left.

    ./dev cache --prune 5
    """
    from aotforge.base.cache_folder import usage

    folder = cache_folder(cache)
    if prune is not None:
        return _prune(folder, prune, shared, absolute(cache_keys))
    kinds, now = usage(folder), time.time()
    fields: dict[str, object] = {"cache": str(folder), "kinds": [asdict(row) for row in kinds]}
    lines = []
    for row in kinds:
        days = f"used {(now - row.newest) / 86400:.0f} to {(now - row.oldest) / 86400:.0f} days ago"
        used = days if row.collected else ""
        lines.append(f"{row.size / 1e6:10.1f} MB  {row.objects:6}  {row.kind:24}{used}".rstrip())
    lines.append(f"{sum(row.size for row in kinds) / 1e6:10.1f} MB  in {folder}")
    if shared:
        from aotforge.publish.shared_cache import shared_usage
        from aotforge.publish.stores.store import redact_urls

        counts = shared_usage(shared, cache_root)
        fields["shared"] = {kind: {"objects": count, "size": size} for kind, (count, size) in counts.items()}
        place = redact_urls(shared)
        lines += [
            f"{size / 1e6:10.1f} MB  {count:6}  {kind} in {place}" for kind, (count, size) in counts.items()
        ]
    return Result(fields, lines)


def _prune(folder: Path, limit: float, shared: str | None, keys: Path | None) -> Report:
    """Prunes the shared cache, else the folder with root filesystems and what killed builds left."""
    from aotforge.base.cache_folder import evict
    from aotforge.publish.shared_cache import prune_shared
    from aotforge.run.choose import EXECUTORS, make_runner
    from aotforge.run.rootfs.cache import prune_rootfs

    if limit < 0:
        raise UnsupportedError(f"--prune {limit:g} is not a valid size", hint="--prune 20, in GiB")
    if shared:
        return prune_shared(shared, keys, int(limit * 2**30))
    report = evict(folder, int(limit * 2**30))
    removed, left = list(map(str, prune_rootfs(ROOT, folder))), []
    for executor in EXECUTORS[1:]:
        with suppress(ExecutorError):
            left += [f"{executor}: {name}" for name in make_runner(executor, cache=folder).prune()]
    fields: Any = report.fields()
    return Result({**fields, "rootfs": removed, "left": left}, [*report.lines(), *removed, *left])


@command("status")
def status(
    cache: Cache = None,
    count: Annotated[int, "builds that are listed, the newest first (default 10)"] = 10,
    trace: Annotated[str | None, "write a build's stages and jobs over time, for ui.perfetto.dev"] = None,
    name: Annotated[str | None, "with --trace: a listed build (default: the newest that has ended)"] = None,
    settings: Annotated[bool, "instead the settings and where they come from"] = False,
) -> Report:
    """Running and past builds of a cache folder, a trace of one of them, or the settings of this checkout.

    ./dev status --trace build-trace.json
    """
    from aotforge.pipeline.build_record import read_records

    if settings:
        rows = list(_settings())
        width = max(len(row["name"]) for row in rows)
        return Result(rows, [f"{row['name']:{width}}  {row['value']}  ({row['source']})" for row in rows])
    records = read_records(cache_folder(cache))
    if trace:
        from aotforge.base.files import write_atomic
        from aotforge.devtools.build_report import build_trace

        by_name = {listed.name: listed for listed in records}
        record = by_name.get(name) if name else next((r for r in records if r.state != "running"), None)
        if record is None:
            raise UnknownNameError(
                f"unknown build {name}" if name else "no build has ended here",
                cause=suggest(name, by_name) if name and records else "",
                hint="./dev status lists the builds of a cache folder",
            )
        file = Path(trace).absolute()
        write_atomic(file, build_trace(record).encode())
        shown = {"file": str(file), "build": record.name, "state": record.state}
        return Result(shown, [f"{file}: build {record.name}, {record.state}"])
    brief = [
        {name: value for name, value in asdict(listed).items() if name not in ("compiled", "executed")}
        | {"compiled": len(listed.compiled), "executed": len(listed.executed), "seconds": listed.seconds}
        for listed in records[:count]
    ]
    return Result(brief, [listed.line() for listed in records[:count]] or ["no builds"])


def _settings() -> Iterator[dict[str, str]]:
    """Variables, aotforge.toml and what the project's files set; keys and passwords are not shown."""
    from aotforge.publish.stores.store import redact_urls

    for name, default in VARIABLES.items():
        value = os.environ.get(name)
        if value and (is_secret(name) or "\n" in value):
            value = "set, not shown"
        shown = redact_urls(value) if value else f"not set: {default}"
        yield {"name": name, "value": shown, "source": "environment" if value else "default"}
    for name, value in load_settings(ROOT).items():
        yield {"name": name.replace("_", "-"), "value": redact_urls(str(value)), "source": "aotforge.toml"}
    for name, (value, file) in project_facts(ROOT).items():
        yield {"name": name, "value": value, "source": file}
