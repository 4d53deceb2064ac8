"""The front door: each task reads its flags, calls one function and prints. No logic lives here."""

from __future__ import annotations

import sys
from pathlib import Path

from invoke import Collection, Context, Exit, task

ROOT = Path(__file__).resolve().parent


@task
def lint(c: Context) -> None:
    """Formatting, lint and strict types."""
    with c.cd(str(ROOT)):
        for command in ("ruff format --check .", "ruff check .", "mypy"):
            if c.run(f"{sys.executable} -m {command}", warn=True, pty=False).failed:  # type: ignore[union-attr]
                raise Exit(code=1)


namespace = Collection(lint)
