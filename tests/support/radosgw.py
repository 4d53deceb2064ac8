"""radosgw, Ceph's S3 server (Debian: radosgw, ceph-mon, ceph-osd), with everything it needs in memory; unlike the servers from the package index it
checks who asks. Without authentication towards Ceph itself, on loopback.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.s3 import Server, free_port

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
ACCESS, SECRET = "publisher", "anotherSecretThatMustNeverBePrinted"


def have_radosgw() -> bool:
    """Whether Debian's packages are installed."""
    return all(shutil.which(program) for program in PROGRAMS)


@contextmanager
def running_radosgw(scratch: Path) -> Iterator[Server]:
    """One monitor, one in-memory OSD, one gateway; about ten seconds to start."""
    fsid, monitor, gateway = str(uuid.uuid4()), free_port(), free_port()
    configuration = scratch / "ceph.conf"
    configuration.write_text(
        f"""[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor}
auth cluster required = none
auth service required = none
auth client required = none
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {scratch}
admin socket = {scratch}/$name.asok
log file = {scratch}/$name.log
pid file = {scratch}/$name.pid
mon data = {scratch}/mon
osd data = {scratch}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
mon max pg per osd = 2000
mon allow pool size one = true
rgw dns name = localhost
"""
    )
    for folder in ("mon", "osd"):
        (scratch / folder).mkdir()
    with ExitStack() as stack:

        def run(*command: str) -> str:
            done = subprocess.run(
                [command[0], "-c", str(configuration), *command[1:]],
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
                cwd=scratch,
            )
            if done.returncode:
                raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
            return done.stdout.strip()

        def start(*command: str) -> subprocess.Popen[bytes]:
            with (scratch / f"{command[0]}.out").open("wb") as out:
                process = subprocess.Popen(
                    [command[0], "-c", str(configuration), "-f", *command[1:]],
                    stdout=out,
                    stderr=out,
                    cwd=scratch,
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        def start_osd() -> None:
            # one that asks before it knows the cluster's identity gives up
            for _ in range(5):
                process = start("ceph-osd", "-i", "0")
                while process.poll() is None:
                    if "1 up" in run("ceph", "osd", "stat"):
                        return
                    time.sleep(0.2)
            raise AssertionError("the OSD does not stay")

        monmap = str(scratch / "monmap")
        subprocess.run(
            ["monmaptool", "--create", "--clobber", "--addv", "a", f"[v1:127.0.0.1:{monitor}]", "--fsid", fsid, monmap],
            check=True, capture_output=True,
        )  # fmt: skip
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        start("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        run("ceph", "--connect-timeout", "30", "osd", "new", osd, "0")
        run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd)
        start("ceph-osd", "-i", "0")
        run(
            "radosgw-admin",
            "user",
            "create",
            "--uid=tests",
            "--display-name=tests",
            f"--access-key={ACCESS}",
            f"--secret-key={SECRET}",
        )
        start(
            "radosgw",
            "-n",
            "client.rgw",
            f"--rgw_frontends=beast endpoint=127.0.0.1:{gateway}",
            f"--rgw_data={scratch}",
        )
        server = Server(url=f"http://127.0.0.1:{gateway}", access=ACCESS, secret=SECRET)
        _wait(server)
        yield server


def _wait(server: Server) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.client(attempts=1).list_buckets()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
