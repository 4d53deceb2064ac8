"""Uploads in parts that resume earlier uploads: a killed publisher loses one part per thread."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from aotforge.base.paced_http import Clock
from aotforge.publish.stores.reading import Pace
from aotforge.publish.stores.s3_errors import s3_errors
from aotforge.publish.stores.store import Content, ErrorKind, OnBytes, StoreError, content_size

_THREADS = 6
_MOST_LISTED = 1_000_000
_MOST_UPLOADS = 100
_MOST_PARTS = 10_000
_ENTRY_BYTES = 100
"""What an entry of a listing counts as, for the time that it takes: a listing without entries must end too. The names of all
entries have fewer on average."""

Location = dict[str, str]
"""Bucket and Key, as boto3 takes them."""


def listed(
    client: Any,
    operation: str,
    field: str,
    place: str,
    *,
    where: Mapping[str, str],
    clock: Clock = time.monotonic,
) -> Iterator[Mapping[str, Any]]:
    """The entries of all pages of a listing. Raises what boto3 raises; StoreError for one that does not end, or is too slow."""
    pace, count, characters = Pace(place, clock), 0, 0
    for page in client.get_paginator(operation).paginate(**where):
        entries = page.get(field, ())
        pace.count(len(entries) * _ENTRY_BYTES)
        pace.left()
        count += len(entries)
        characters += sum(len(entry.get("Key", "")) for entry in entries)
        if count > _MOST_LISTED or characters > _MOST_LISTED * _ENTRY_BYTES:
            what = f"{place}: a listing has more than {_MOST_LISTED} entries, or names of {_ENTRY_BYTES} times as many characters"
            raise StoreError(
                ErrorKind.REFUSED, what, cause="it is not one of a place of releases, or does not end"
            )
        yield from entries


def put_parts(
    client: Any, at: Location, content: Content, *, part: int, condition: bool, on_bytes: OnBytes | None
) -> None:
    """Uploads in parts of `part` bytes; `condition`: never over another object. Raises what boto3 raises.

    An existing part is kept when its ETag is the MD5 of the content's; a server with other ETags gets all parts again.
    An upload with other bytes belongs to another publisher and is not changed.
    """
    piece = partial(_slice, content, part)
    upload, tags = _earlier(client, at, piece)
    if not upload:
        upload = client.create_multipart_upload(**at)["UploadId"]
    if on_bytes:
        for number in tags:
            on_bytes(len(piece(number)))
    missing = [
        number for number in range(1, max(1, -(-content_size(content) // part)) + 1) if number not in tags
    ]
    lock = threading.Lock()

    def send(number: int) -> str:
        data = piece(number)
        tag = client.upload_part(**at, UploadId=upload, PartNumber=number, Body=data)["ETag"]
        if on_bytes:
            with lock:
                on_bytes(len(data))
        return str(tag)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="part") as pool:
        # the first failure cancels what has not begun
        tags |= dict(zip(missing, pool.map(send, missing), strict=True))
    parts = {"Parts": [{"PartNumber": number, "ETag": tags[number]} for number in sorted(tags)]}
    only = {"IfNoneMatch": "*"} if condition else {}
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts, **only)


def abort_uploads(client: Any, at: Location) -> None:
    """Aborts every unfinished upload of a completed object, to free storage. Failures are ignored."""
    with suppress(StoreError), s3_errors(at["Key"]):
        for upload in _uploads(client, at):
            with suppress(ClientError):
                client.abort_multipart_upload(**at, UploadId=upload)


def _uploads(client: Any, at: Location) -> Iterator[str]:
    where = {"Bucket": at["Bucket"], "Prefix": at["Key"]}
    for upload in listed(client, "list_multipart_uploads", "Uploads", at["Key"], where=where):
        if upload["Key"] == at["Key"]:
            yield upload["UploadId"]


def _earlier(client: Any, at: Location, piece: Callable[[int], bytes]) -> tuple[str, dict[int, str]]:
    """The unfinished upload with most parts of the content, and their ETags; none when listing is not allowed."""
    best: tuple[str, dict[int, str]] = ("", {})
    with suppress(ClientError):
        for upload in list(islice(_uploads(client, at), _MOST_UPLOADS)):
            with suppress(ClientError):  # another publisher may finish it meanwhile
                tags = _matching(client, {**at, "UploadId": upload}, piece)
                if tags is not None and len(tags) > len(best[1]):
                    best = (upload, tags)
    return best


def _matching(client: Any, upload: Location, piece: Callable[[int], bytes]) -> dict[int, str] | None:
    """ETags of the content's parts in an upload; None when it holds a part with other bytes."""
    tags = {}
    for entry in listed(client, "list_parts", "Parts", upload["Key"], where=upload):
        number = int(entry["PartNumber"])
        data = piece(number) if 1 <= number <= _MOST_PARTS else b""  # also behind the end
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not data or entry["Size"] != len(data) or entry["ETag"].strip('"') != md5:
            return None
        tags[number] = entry["ETag"]
    return tags


def _slice(content: Content, part: int, number: int) -> bytes:
    start = (number - 1) * part
    if isinstance(content, Path):
        with content.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(part)
    return content[start : start + part]
