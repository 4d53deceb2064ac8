"""Commands and listings of documentation pages: extraction, and execution in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.e2e.checkouts import HOME, ROOT, copy_checkout

DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: a listing of `file`, or with `kind` sh commands that a reader executes."""

    file: str
    kind: str
    body: str


def tutorials() -> tuple[str, ...]:
    """File names of the site's tutorials, from its navigation."""
    text = (DOCS / "mkdocs.yml").read_text(encoding="utf-8").replace("!!python", "!python")
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("!python", lambda *_: None)  # type: ignore[attr-defined]
    for entry in yaml.load(text, loader)["nav"]:  # a safe loader: its tags of Python are ignored
        if pages := entry.get("Tutorials"):
            return tuple(name for page in pages for name in page.values())
    raise AssertionError("docs/mkdocs.yml lists no tutorials")


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page of docs/, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for one in _BLOCK.finditer(text):
        yield Block(file=one["file"] or "", kind=one["kind"], body=one["body"])


def listings(page: str) -> dict[str, str]:
    """Texts of a page's listings by file."""
    return {block.file: block.body for block in blocks(page) if block.file}


def task_lines(page: Path) -> Iterator[list[str]]:
    """The words of every `./dev` command in a page's fenced and indented blocks, without comments."""
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^(?: {4}|\$ )?(\./dev .*)$", text, re.MULTILINE):
        command = re.sub(r"[\[\]]", "", re.split(r"\s[|&;>]|\s#", line)[0])  # [--flag]: may be left out
        yield ["1" if word == "N" else word for word in shlex.split(command)]


def script(page: str, *, after: Callable[[Block], str] = lambda block: "") -> str:
    """Listings are written to their files, and commands run, in order. `after`: commands after a block."""
    parts = ["set -euo pipefail"]
    for block in blocks(page):
        if block.file:
            parts.append(f"mkdir -p $(dirname {block.file})")
            parts.append(f"cat > {block.file} <<'END_OF_LISTING'\n{block.body}END_OF_LISTING")
        else:
            assert block.kind == "sh", f"{page}: a block has no file name before it: {block.body[:80]}"
            parts.append(block.body)
        parts.append(after(block))
    return "\n".join(parts)


def tutorial_checkout(folder: Path) -> Path:
    """A copy of the checkout whose `dev` uses the environment that runs the tests."""
    checkout = copy_checkout(folder / "checkout")
    python = f'[ "$1" = python ] && shift && exec {sys.executable} "$@"'
    text = f'#!/bin/sh\n{python}\nexec {sys.executable} tasks.py "$@"\n'
    (checkout / "dev").write_text(text)
    return checkout


def execute(commands: str, checkout: Path, settings: Mapping[str, str] | None = None) -> str:
    """What the commands print in a checkout, with the project's cache."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_"))}
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=checkout,
        env=kept | {"AOTFORGE_HOME": str(HOME)} | dict(settings or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
