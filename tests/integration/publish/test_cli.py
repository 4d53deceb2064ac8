"""The tasks as users call them, against a real server; and that no secret is ever shown."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest

import tasks
from aotforge.cli.program import main
from tests.support.publishing import ROOT, make_release
from tests.support.s3 import SECRET, Server
from tests.support.web import running_web

SECRETS = (SECRET, "aSessionTokenToBeKept", "PRIVATE KEY", "hunter2", "X-Amz-Signature=")


class User:
    """Runs tasks; everything that they ever print is kept and searched for secrets."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AWS_"))}
        self.environment = (
            kept | environment | {"AOTFORGE_CACHE": str(folder / "cache"), "AWS_SESSION_TOKEN": SECRETS[1]}
        )

    def run(self, *arguments: str | Path, code: int = 0, env: dict[str, str] | None = None) -> str:
        out = io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment | (env or {}), clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            pytest.raises(SystemExit) as ended,
        ):
            main(tasks.namespace, [*map(str, arguments)])
            raise SystemExit(0)
        shown = out.getvalue()
        assert (ended.value.code or 0) == code, shown
        assert not [secret for secret in SECRETS if secret in shown], shown
        assert "Traceback" not in shown, shown
        return shown


def test_from_keys_to_prefix(server: Server, tmp_path: Path) -> None:
    user = User(tmp_path, server.environment())
    bucket = server.bucket()
    to, keys, release = f"s3://{bucket}/aot", tmp_path / "keys", make_release(tmp_path / "r1")
    root = keys / "roots/1.root.json"
    user.run("release.keys", "--create", keys)
    assert (keys / "targets-1.pem").stat().st_mode & 0o777 == 0o600
    assert "would send 0.11.2b-r1/SHA256SUMS" in user.run(
        "release.publish", "--folder", release, "--to", to, "--keys", keys, "--dry-run"
    )
    published = json.loads(
        user.run("release.publish", "--folder", release, "--to", to, "--keys", keys, "--json")
    )
    assert published["index_version"] == 1 and len(published["sent"]) == 7
    listed = user.run("release.list", "--from", to, "--root", root)
    assert "0.11.2b-r1" in listed and "amd-gfx908 amd-gfx90a" in listed and "verified" in listed
    install = ("install", "--arch", "gfx908", "--root", root, "--prefix", tmp_path / "prefix")
    done = json.loads(user.run(*install, "--from", to, "--json"))
    assert done["fresh"] and (tmp_path / "prefix/lib/aotriton.images/amd-gfx908/__signature__").exists()
    user.run("release.yank", "0.11.2b-r1", "--to", to, "--keys", keys, "--reason", "wrong results")
    user.run("release.publish", "--from", to, "--to", tmp_path / "mirror", "--root", root)
    with running_web(tmp_path / "mirror") as web:
        shown = user.run(*install, "--from", web.url, code=4)
    assert "was yanked: wrong results" in shown
    assert "already in" in user.run(*install, "--from", (tmp_path / "mirror").as_uri(), "--allow-yanked")
    assert "7 files" not in user.run("install", "--prefix", tmp_path / "prefix", "--uninstall")
    assert not (tmp_path / "prefix").exists()


def test_errors_in_words(server: Server, tmp_path: Path) -> None:
    """Each with its exit code; and with credentials wherever a user might have put them."""
    user = User(tmp_path, server.environment())
    bucket = server.bucket()
    release = make_release(tmp_path / "r1")
    keys = tmp_path / "keys"
    user.run("release.keys", "--create", keys)
    publish = ("release.publish", "--folder", release, "--keys", keys, "--to")
    assert "NoSuchBucket" in user.run(*publish, "s3://no-such-bucket-here/x", code=6)
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    assert "no credentials" in user.run(*publish, f"s3://{bucket}/x", code=6, env=none)
    assert "(gone)" in user.run(*publish, f"s3://{bucket}/x", code=6, env={"AWS_PROFILE": "gone"})
    shown = user.run(*publish, "https://me:hunter2@example.invalid/x?X-Amz-Signature=1", code=6)
    assert "https://example.invalid/x can be read from, not published to" in shown
    assert "is not understood" in user.run(*publish, "s3://me:hunter2@bucket/x", code=6)
    assert "not a known kind of address" in user.run(*publish, "ftp://me:hunter2@host/x", code=6)
    assert "no keys to sign" in user.run(
        "release.publish", "--folder", release, "--to", tmp_path / "d", code=6
    )
    (keys / "targets-1.pem").chmod(0o644)
    assert "can be read by others" in user.run(*publish, tmp_path / "d", code=6)
    assert "inside the repository" in user.run("release.keys", "--create", ROOT / "keys", code=6)
    root = keys / "roots/1.root.json"
    install = ("install", "--prefix", tmp_path / "p", "--arch", "gfx908", "--root", root)
    with running_web(tmp_path) as web:
        address = web.url.replace("//", "//me:hunter2@") + "/none?X-Amz-Signature=1"
        shown = user.run(*install, "--from", address, code=4)
        assert f"{web.url}/none/tuf/timestamp.json: the server answered 404" in shown
    assert "unknown arch" in user.run(
        "install", "--prefix", tmp_path / "p", "--arch", "gfx9o8", "--from", tmp_path, code=2
    )
    assert "place of releases is not set" in user.run(*install, code=4)
    assert "cannot be read" in user.run(*install[:-1], tmp_path / "none", "--from", tmp_path, code=7)
    assert "is needed" in user.run("install", "--arch", "gfx908", code=2)
    error = json.loads(
        user.run(*install, "--from", tmp_path / "gone", "--json", code=4).partition("\nerror:")[0]
    )
    assert error["error"]["kind"] == "install"


def test_a_public_bucket(server: Server, tmp_path: Path) -> None:
    """Reading needs no credentials where the bucket is public."""
    user = User(tmp_path, server.environment())
    bucket = server.bucket()
    keys, place = tmp_path / "keys", f"s3://{bucket}"
    user.run("release.keys", "--create", keys)
    user.run("release.publish", "--folder", make_release(tmp_path / "r1"), "--to", place, "--keys", keys)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    anonymous = dict.fromkeys(names, "") | {"HOME": str(tmp_path)}
    user.run("release.list", "--from", place, "--root", keys / "roots/1.root.json", env=anonymous)


def test_a_program_reads_events_beside_the_result(tmp_path: Path) -> None:
    """As a program starts `./dev`: events on standard error, one value on standard output, with and without
    them."""
    user = User(tmp_path, {})
    user.run("release.keys", "--create", tmp_path / "keys", "--root-keys", "1", "--threshold", "1")
    release = make_release(tmp_path / "r1")
    command = (str(ROOT / "dev"), "release.publish", "--folder", str(release), "--json", "--dry-run")
    places = ("--to", str(tmp_path / "d"), "--keys", str(tmp_path / "keys"))
    # in CI `dev` reports what it installs, which the first user of a list of packages would see
    both = os.environ | user.environment
    settings = {name: value for name, value in both.items() if name != "CI"}
    silent, noisy = (
        subprocess.run([*command, *places, *more], env=settings, capture_output=True, text=True, check=True)
        for more in ((), ("--progress", "json"))
    )  # fmt: skip
    assert silent.stderr == ""
    assert json.loads(noisy.stdout) == json.loads(silent.stdout)
    events = [json.loads(line) for line in noisy.stderr.splitlines()]
    assert [one["event"] for one in events][:2] == ["started", "progress"]
    assert (events[-1]["event"], events[-1]["stage"], events[-1]["ok"]) == ("finished", "checking", True)
    last = [one for one in events if one["event"] == "progress"][-1]
    sizes = sum(path.stat().st_size for path in release.rglob("*") if path.is_file())
    assert last["unit"] == "bytes" and last["done"] == last["total"] == sizes
