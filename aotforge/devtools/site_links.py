"""Checks of a static site: no dead link, no missing anchor, nothing loaded from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_NOT_LOADED = {"canonical", "next", "prev", "alternate", "edit"}
"""Relations of `link` elements that only name an address."""


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (source := given.get(_LOADED.get(tag, ""))) and given.get("rel") not in _NOT_LOADED:
            self.loads.append(source)


def site_faults(folder: Path) -> Iterator[str]:
    """One line per dead link, missing anchor or resource of another server."""
    pages = {
        path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))
    }
    root = folder.resolve()
    for path, page in pages.items():
        here = path.relative_to(root).as_posix()
        for address in page.loads:
            if urlsplit(address).scheme not in {"", "data"} or address.startswith("//"):
                yield f"{here} loads {address}"
        if path.name == "404.html":
            continue  # shown at any address, so its links start at the site's root
        for address in {*page.links, *page.loads}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{here}: {address} does not exist"
            elif target in pages and unquote(parts.fragment) not in {"", "__skip", *pages[target].anchors}:
                yield f"{here}: {address} has no such anchor"
