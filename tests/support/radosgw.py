"""radosgw, Ceph's S3 server (Debian: radosgw, ceph-mon, ceph-osd), with everything it needs in memory; unlike the servers from the package index it
checks credentials. Without authentication towards Ceph itself, on loopback.
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


_CONFIGURATION = """[global]
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


class _Cluster:
    """Ceph's programs in one folder; those that stay are ended with `stack`."""

    def __init__(self, scratch: Path, stack: ExitStack) -> None:
        self._scratch, self._stack = scratch, stack
        self._configuration = scratch / "ceph.conf"

    def configure(self, fsid: str, monitor: int) -> None:
        self._configuration.write_text(
            _CONFIGURATION.format(fsid=fsid, monitor=monitor, scratch=self._scratch)
        )
        for folder in ("mon", "osd"):
            (self._scratch / folder).mkdir()

    def run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [program, "-c", str(self._configuration), *arguments],
            capture_output=True, text=True, timeout=150, check=False, cwd=self._scratch,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{program} {arguments}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._scratch / f"{program}.out").open("wb") as out:
            process = subprocess.Popen(
                [program, "-c", str(self._configuration), "-f", *arguments],
                stdout=out, stderr=out, cwd=self._scratch,
            )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def start_osd(self) -> None:
        # an OSD that starts before it knows the cluster's identity exits
        for _ in range(5):
            process = self.start("ceph-osd", "-i", "0")
            while process.poll() is None:
                if "1 up" in self.run("ceph", "osd", "stat"):
                    return
                time.sleep(0.2)
        raise AssertionError("the OSD does not stay")


@contextmanager
def running_radosgw(scratch: Path) -> Iterator[Server]:
    """One monitor, one in-memory OSD, one gateway; about ten seconds to start."""
    fsid, monitor, gateway = str(uuid.uuid4()), free_port(), free_port()
    monmap, osd = str(scratch / "monmap"), str(uuid.uuid4())
    with ExitStack() as stack:
        cluster = _Cluster(scratch, stack)
        cluster.configure(fsid, monitor)
        subprocess.run(
            ["monmaptool", "--create", "--clobber", "--addv", "a", f"[v1:127.0.0.1:{monitor}]", "--fsid", fsid, monmap],
            check=True, capture_output=True,
        )  # fmt: skip
        cluster.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        cluster.start("ceph-mon", "-i", "a")
        cluster.run("ceph", "--connect-timeout", "30", "osd", "new", osd, "0")
        cluster.run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", osd)
        cluster.start_osd()
        user = ("--uid=tests", "--display-name=tests", f"--access-key={ACCESS}", f"--secret-key={SECRET}")
        cluster.run("radosgw-admin", "user", "create", *user)
        cluster.start(
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
    deadline = time.monotonic() + 300
    while True:
        try:
            server.client(attempts=1).list_buckets()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
