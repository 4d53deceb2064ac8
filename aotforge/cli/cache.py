"""Tasks that show and bound the cache folder and shared caches."""

import os
import time
from dataclasses import asdict
from typing import Annotated

from aotforge.cli.command import (
    Cache,
    Json,
    absolute,
    cache_folder,
    cli_command,
    print_either,
    print_report,
)
from aotforge.errors import UnsupportedError

CacheKeys = Annotated[
    str | None,
    "folder of the keys of the shared cache (default: AOTFORGE_CACHE_KEYS, or AOTFORGE_CACHE_KEY_TARGETS)",
]


@cli_command("cache.show")
def show(
    cache: Cache = None,
    cache_from: Annotated[
        str | None, "also show this shared cache: s3://BUCKET/PREFIX, http(s)://... or a folder"
    ] = None,
    cache_root: Annotated[
        str | None,
        "root of trust of the shared cache, a file (default: AOTFORGE_CACHE_ROOT)",
    ] = None,
    json: Json = False,
) -> None:
    """Objects and sizes of the cache folder by kind, with the days of their use, and those of a shared cache."""
    from aotforge.base.cache_folder import usage

    folder = cache_folder(cache)
    kinds = usage(folder)
    now = time.time()
    lines = [
        f"{one.size / 1e6:10.1f} MB  {one.objects:6}  {one.kind:24}"
        + (
            f"used {(now - one.newest) / 86400:.0f} to {(now - one.oldest) / 86400:.0f} days ago"
            if one.collected
            else ""
        )
        for one in kinds
    ]
    lines.append(f"{sum(one.size for one in kinds) / 1e6:10.1f} MB  in {folder}")
    fields: dict[str, object] = {"cache": str(folder), "kinds": [asdict(one) for one in kinds]}
    if cache_from:
        from aotforge.publish.cache.session import CachePlaces, shared_usage
        from aotforge.publish.stores.store import redact_urls

        places = CachePlaces(source=cache_from, root=cache_root, limit=0, environment=os.environ)
        found = shared_usage(places)
        fields["shared"] = {kind: {"objects": count, "size": size} for kind, (count, size) in found.items()}
        lines += [
            f"{size / 1e6:10.1f} MB  {count:6}  {kind} in {redact_urls(cache_from)}"
            for kind, (count, size) in found.items()
        ]
    print_either(fields, [line.rstrip() for line in lines], json=json)


@cli_command("cache.prune")
def prune(
    limit: Annotated[float, "GiB that stay at most; objects used in the last day always stay"],
    cache: Cache = None,
    shared: Annotated[
        str | None, "bound this shared cache instead of the folder: s3://BUCKET/PREFIX or a folder"
    ] = None,
    cache_keys: CacheKeys = None,
    json: Json = False,
) -> None:
    """Remove the objects that were not used for longest, from the cache folder or from a shared cache."""
    if limit < 0:
        raise UnsupportedError(f"--limit {limit:g} is not a valid size", hint="--limit 20, in GiB")
    size, folder = int(limit * 2**30), cache_folder(cache)
    if shared is None:
        from aotforge.base.cache_folder import collect

        print_report(collect(folder, size), json=json)
        return
    from aotforge.publish.cache.session import CachePlaces, prune_shared

    places = CachePlaces(
        target=shared,
        keys=absolute(cache_keys),
        limit=size,
        environment=os.environ,
    )
    print_report(prune_shared(places), json=json)
