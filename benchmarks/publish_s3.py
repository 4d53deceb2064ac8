"""Uploading to an S3 server on this machine against plain boto3 multipart of the same bytes, turn about, in one run.

    python -m benchmarks.publish_s3 [MIB] [ROUNDS]

`ours` is what publication does to send a file, `boto3` is `upload_file` with the same size of parts and its own defaults otherwise; `reading` is
what publication does besides: it reads every object back and compares.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig

from aotforge.formats.archive import sha256_file
from aotforge.publish.index import IndexedFile, UploadStats
from aotforge.publish.stores.s3 import PART, S3Store, open_s3
from aotforge.publish.upload import upload_object
from tests.support.s3 import Server, running_server

TARGET = 0.8


def main() -> None:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory() as scratch, running_server(Path(scratch)) as server:
        path = Path(scratch) / "file"
        with path.open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))
        os.environ.update(server.environment())
        results = [measure(server, path, mib) for _ in range(rounds)]
    medians = {name: round(statistics.median(r[name] for r in results), 1) for name in results[0]}
    ratio = statistics.median(r["ours"] / r["boto3"] for r in results)
    print(json.dumps({"mib": mib, "rounds": rounds, "mib_per_second": medians, "ratio": round(ratio, 2), "target": TARGET,
                      "met": ratio >= TARGET, "load": os.getloadavg()[0]}, indent=1))  # fmt: skip


def measure(server: Server, path: Path, mib: int) -> dict[str, float]:
    """MiB/s of each way; the bucket is emptied in between, for the server keeps all of it in memory."""
    bucket = server.bucket()
    client: Any = boto3.client("s3")
    started = time.monotonic()
    client.upload_file(
        str(path), bucket, "file", Config=TransferConfig(multipart_chunksize=PART, multipart_threshold=PART)
    )
    peer = time.monotonic() - started
    client.delete_object(Bucket=bucket, Key="file")
    store: S3Store = open_s3(bucket, "")
    store.probe()
    tally = UploadStats()
    file = IndexedFile(name="file", size=path.stat().st_size, sha256=sha256_file(path))
    upload_object(store, "file", path, file, tally, on_bytes=lambda count: None)
    client.delete_object(Bucket=bucket, Key="file")
    return {"boto3": mib / peer, "ours": mib / tally.seconds_sending, "reading": mib / tally.seconds_reading}


if __name__ == "__main__":
    main()
