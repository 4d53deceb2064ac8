"""Uploads in parts that resume earlier uploads: a killed publisher loses one part per thread."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from aotforge.publish.stores.store import Content, OnBytes, content_size

_THREADS = 6

Location = dict[str, str]
"""Bucket and Key, as boto3 takes them."""


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
    with suppress(ClientError, BotoCoreError):
        for upload in _uploads(client, at):
            with suppress(ClientError):
                client.abort_multipart_upload(**at, UploadId=upload)


def _uploads(client: Any, at: Location) -> Iterator[str]:
    pages = client.get_paginator("list_multipart_uploads")
    for page in pages.paginate(Bucket=at["Bucket"], Prefix=at["Key"]):
        for upload in page.get("Uploads", ()):
            if upload["Key"] == at["Key"]:
                yield upload["UploadId"]


def _earlier(client: Any, at: Location, piece: Callable[[int], bytes]) -> tuple[str, dict[int, str]]:
    """The unfinished upload with most parts of the content, and their ETags; none when listing is not allowed."""
    best: tuple[str, dict[int, str]] = ("", {})
    with suppress(ClientError):
        for upload in list(_uploads(client, at)):
            with suppress(ClientError):  # another publisher may finish it meanwhile
                tags = _matching(client, {**at, "UploadId": upload}, piece)
                if tags is not None and len(tags) > len(best[1]):
                    best = (upload, tags)
    return best


def _matching(client: Any, upload: Location, piece: Callable[[int], bytes]) -> dict[int, str] | None:
    """ETags of the content's parts in an upload; None when it holds a part with other bytes."""
    tags = {}
    for page in client.get_paginator("list_parts").paginate(**upload):
        for entry in page.get("Parts", ()):
            number = int(entry["PartNumber"])
            data = piece(number)  # empty behind the end
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            if entry["Size"] != len(data) or entry["ETag"].strip('"') != md5:
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
