"""`./dev docs`: the documentation as a static site, built by pinned tools; mkdocs checks every link.

mkdocs-material comes from locked requirements, mermaid (for diagrams) from npm's registry by its SHA-256.
Once both are in the cache, nothing needs a network, and a reader's browser loads nothing from elsewhere.
"""

import hashlib
import shutil
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.base.downloads import download
from aotforge.base.files import output_errors, output_lock, staged_folder, waiting_lock, write_atomic
from aotforge.devtools.docs_pages import write_pages
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.release.model import load_release_manifest

_MERMAID_URL = "https://registry.npmjs.org/mermaid/-/mermaid-11.17.2.tgz"
_MERMAID_SHA256 = "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"
_MERMAID_MEMBERS = {"package/dist/mermaid.min.js": "mermaid.min.js", "package/LICENSE": "mermaid.LICENSE.txt"}
_MERMAID_LIMIT = 32 * 1024**2
_SECONDS = 60
_REQUIREMENTS = "requirements/docs.txt"


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """Where the site is, and its number of pages and bytes."""

    folder: str
    pages: int
    bytes: int

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines of text."""
        return [f"{self.folder}/index.html: {self.pages} pages, {self.bytes / 1e6:.1f} MB"]


def build_site(root: Path, output: Path, *, home: Path) -> SiteReport:
    """Builds the site of the checkout `root` into `output`, replaced in one step. Equal pages give equal
    files.

    Raises ToolchainError when the tools cannot be installed, ReleaseError for a dead link, OutputError.
    """
    python, mermaid = _python(root, home), _mermaid(home)
    epoch = load_release_manifest(root / "manifests" / "release.yaml").epoch
    with (
        output_lock(output),
        staged_folder(output, known="index.html") as staged,
        tempfile.TemporaryDirectory(prefix="aotforge-docs-") as scratch,
    ):
        work = Path(scratch)
        write_pages(root, work / "docs")
        assets = Path(shutil.copytree(root / "docs" / "assets", work / "docs" / "assets"))
        with tarfile.open(fileobj=BytesIO(mermaid)) as tar:
            for member, name in _MERMAID_MEMBERS.items():
                content = tar.extractfile(member)
                assert content is not None  # the archive is the pinned one
                (assets / name).write_bytes(content.read())
        shutil.copyfile(root / "docs" / "mkdocs.yml", work / "mkdocs.yml")
        command = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(staged)]
        quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
        own = child_environment({"SOURCE_DATE_EPOCH": str(epoch), **quiet})
        done = run_child(command, environment=own, cwd=work, capture_output=True)
        if done.returncode:
            raise ReleaseError(
                f"the documentation cannot be built:\n{done.stderr.strip()[-4000:]}",
                cause="a dead link, or a page that docs/mkdocs.yml does not list",
                hint="correct the page, then ./dev docs",
            )
        files = [path for path in staged.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        pages = sum(path.suffix == ".html" for path in files)
    return SiteReport(folder=str(output), pages=pages, bytes=size)


def _python(root: Path, home: Path) -> str:
    """The Python of the environment with the locked requirements, which is made once. Raises
    ToolchainError."""
    requirements = root / _REQUIREMENTS
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = home / f"docs-{digest}"
    python, made = folder / "bin" / "python", folder / ".made"
    install = [str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--only-binary", ":all:", "--require-hashes", "-r", str(requirements)]
    with output_errors(folder), waiting_lock(folder):
        if not made.is_file():
            for command in ([sys.executable, "-P", "-m", "venv", str(folder)], install):
                done = run_child(command, environment=child_environment(keep=NETWORK), capture_output=True)
                if done.returncode:
                    raise ToolchainError(
                        f"{_REQUIREMENTS} cannot be installed: {done.stderr.strip()[-600:]}",
                        cause="no package index is reachable, or a package is not the locked one",
                        hint="check the network or pip's settings, then ./dev docs",
                    )
            made.touch()
    return str(python)


def _mermaid(home: Path) -> bytes:
    """The pinned archive, from the cache or the registry. Raises ToolchainError."""
    archive = home / "cache" / "sources" / _MERMAID_SHA256 / "mermaid.tgz"
    try:
        if not archive.is_file():
            write_atomic(archive, b"".join(download(_MERMAID_URL, limit=_MERMAID_LIMIT, seconds=_SECONDS)))
        data = archive.read_bytes()
    except OSError as error:
        raise ToolchainError(f"{_MERMAID_URL} cannot be fetched: {error}", cause="no network") from error
    if hashlib.sha256(data).hexdigest() != _MERMAID_SHA256:
        raise ToolchainError(
            f"{archive} is not the pinned archive", hint=f"remove it, or put {_MERMAID_URL} there"
        )
    return data
