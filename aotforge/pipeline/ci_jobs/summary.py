"""The summary of a job in Markdown: its files with sizes and hashes, its time, its release or shard."""

import json
from pathlib import Path

from aotforge.errors import ShardError
from aotforge.formats.archive import sha256_file
from aotforge.pipeline.shards.shard_file import IMAGES, SUFFIX, decode
from aotforge.release.model import MANIFEST


def summary(title: str, folder: Path, seconds: float | None = None) -> str:
    """One section about the files in `folder`, named relative to it. Raises ShardError when there is none."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not files:
        raise ShardError(
            f"nothing to summarise in {folder}",
            hint="./dev ci.summary --folder FOLDER with the output folder of the job",
        )
    took = f" in {_time(seconds)}" if seconds is not None else ""
    total = sum(path.stat().st_size for path in files)
    lines = [f"### {title}", "", f"{len(files)} files, {total:,} bytes{took}", ""]
    lines += ["| file | bytes | SHA-256 |", "|---|---:|---|"]
    for path in files:
        name = path.relative_to(folder).as_posix()
        lines.append(f"| {name} | {path.stat().st_size:,} | `{sha256_file(path)}` |")
    for path in files:
        if path.name == MANIFEST:
            lines += ["", *_release(path)]
        elif path.name.endswith(SUFFIX):
            lines += ["", _shard(path)]
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _release(path: Path) -> list[str]:
    manifest = json.loads(path.read_bytes())
    images = sum(len(pack["images"]) for pack in manifest["packs"])
    packs = ", ".join(f"{pack['name']} ({pack['profile']})" for pack in manifest["packs"])
    verified = "all executed and passed" if manifest["verified"] else "**not all verified**"
    lines = [f"Release {manifest['release']}: {images} different images in {packs}, {verified}."]
    return lines + [f"- development build: {reason}" for reason in manifest["development"]]


def _shard(path: Path) -> str:
    about = decode(path.read_bytes(), path).manifest
    if about["kind"] == IMAGES:
        shard = about["shard"]
        return f"{about['pack']}: shard {shard['number']} of {shard['count']}, {len(about['jobs'])} images."
    return f"{about['kind']} for {about.get('platform')}, needs glibc {about.get('glibc')}, built by {about.get('compiler')}."
