"""Uploads in parts that resume earlier uploads: a killed publisher loses one part per thread."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from aotforge.publish.stores.reading import Pace
from aotforge.publish.stores.s3_errors import s3_errors
from aotforge.publish.stores.store import Content, ErrorKind, OnBytes, StoreError, content_size

_THREADS = 6
_MOST_LISTED = 1_000_000
_MOST_UPLOADS = 100
_UPLOAD_ENTRIES = 1000
"""Also of objects whose names begin with this object's."""
_ENTRY_BYTES = 100
"""What an entry of a listing counts as, for the time that it takes: a listing without entries must end too. The names of all
entries have fewer on average."""

Location = dict[str, str]
"""Bucket and Key, as boto3 takes them."""


def listed(
    client: Any, operation: str, field: str, pace: Pace, *, where: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """The entries of all pages of a listing. Raises what boto3 raises; StoreError for one that does not end, or is too slow."""
    count = characters = 0
    for page in client.get_paginator(operation).paginate(**where):
        entries = page.get(field, ())
        pace.count(len(entries) * _ENTRY_BYTES)
        pace.left()
        count += len(entries)
        characters += sum(len(entry.get("Key", "")) for entry in entries)
        if count > _MOST_LISTED or characters > _MOST_LISTED * _ENTRY_BYTES:
            what = f"{pace.place}: a listing has more than {_MOST_LISTED} entries, or names of {_ENTRY_BYTES} times as many characters"
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
    piece, size = partial(_slice, content, part), content_size(content)
    sizes = {start // part + 1: min(part, size - start) for start in range(0, max(size, 1), part)}
    upload, tags = _earlier(client, at, piece, sizes)
    if not upload:
        upload = client.create_multipart_upload(**at)["UploadId"]
    if on_bytes:
        for number in tags:
            on_bytes(sizes[number])
    missing = [number for number in sizes if number not in tags]
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
    """Aborts the unfinished uploads of a completed object, to free storage. Failures are ignored."""
    pace = Pace(at["Key"])
    with suppress(StoreError), s3_errors(at["Key"]):
        for upload in _uploads(client, at, pace):
            pace.left()
            with suppress(ClientError):
                client.abort_multipart_upload(**at, UploadId=upload)


def _uploads(client: Any, at: Location, pace: Pace) -> Iterator[str]:
    where = {"Bucket": at["Bucket"], "Prefix": at["Key"]}
    entries = listed(client, "list_multipart_uploads", "Uploads", pace, where=where)
    for upload in islice(entries, _UPLOAD_ENTRIES):
        if upload["Key"] == at["Key"]:
            yield upload["UploadId"]


def _earlier(
    client: Any, at: Location, piece: Callable[[int], bytes], sizes: Mapping[int, int]
) -> tuple[str, dict[int, str]]:
    """The unfinished upload with most parts of the content, and their ETags; none when listing is not allowed.

    All listings have one pace, and each part of the content is read once: a server can list any number of uploads.
    """
    pace, uploads = Pace(at["Key"]), {}
    with suppress(ClientError):
        for upload in list(islice(_uploads(client, at, pace), _MOST_UPLOADS)):
            with suppress(ClientError):  # another publisher may finish it meanwhile
                uploads[upload] = _parts(client, {**at, "UploadId": upload}, pace, sizes)
    md5 = cache(lambda number: hashlib.md5(piece(number), usedforsecurity=False).hexdigest())
    best: tuple[str, dict[int, str]] = ("", {})
    for upload, tags in uploads.items():
        if len(tags) > len(best[1]) and all(tag.strip('"') == md5(number) for number, tag in tags.items()):
            best = (upload, tags)
    return best


def _parts(client: Any, upload: Location, pace: Pace, sizes: Mapping[int, int]) -> dict[int, str]:
    """ETags of an upload's parts; none when one has another size than that of the content, or is listed twice."""
    tags: dict[int, str] = {}
    for entry in listed(client, "list_parts", "Parts", pace, where=upload):
        number = int(entry["PartNumber"])
        if number in tags or entry["Size"] != sizes.get(number):
            return {}
        tags[number] = entry["ETag"]
    return tags


def _slice(content: Content, part: int, number: int) -> bytes:
    start = (number - 1) * part
    if isinstance(content, Path):
        with content.open("rb", buffering=0) as file:
            file.seek(start)
            return file.read(part)
    return content[start : start + part]
