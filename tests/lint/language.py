"""Words that this project does not use, with what to write instead (docs/architecture.md).

    python -m tests.lint.language [PATH ...]     # prints path:line: word -> better; all tracked files by
    default

Words are found in prose, messages and names alike: `told` is found in `_told` and `told_apart`. Of some
words only variables are refused.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.project_files import project_files

ROOT = Path(__file__).resolve().parents[2]

BANNED: dict[str, str] = {
    r"rooms?": "package, stage; free space (on a disk)",
    r"houses?": "project, architecture",
    r"doors?": "command line, entry point",
    r"judg\w*": "verifier, check, compare",
    r"vouch\w*": "sign, trust",
    r"papers": "attestations, documents",
    r"foreign(?! (function|key))": "unknown, another's, does not belong to",
    r"told|tells?": "reports, informs, shows",
    r"hears?|heard": "receives",
    r"speaks?|spoken|spoke": "implements (a protocol), communicates",
    r"asks?|asked": "requests, queries, calls",
    r"says?|said": "reports, states, prints",
    r"go(es|ing)? on": "continues, resumes",
    r"mends?|mended": "repairs, fixes",
    r"in reach|out of reach": "reachable, available",
    r"so many": "this many, N",
    r"(?<!there )is no(?= (?!longer|more|less|later|earlier|larger|smaller|part))": "is not a valid",
    r"lies": "is, is located",
    r"(?<!-)walls?(?![ _-]?(clock|time|seconds|s\b))": "isolation, sandbox",
    r"nobody|somebody|anybody|everybody": "no process, another process, any user",
    r"stands|stood": "is, is located",
    r"chips?": "arch; GPU",
    r"lived?|lives|(?<!iter_)dies": "is located; exits, ends",
    r"whoever": "the process that, the user who",
    r"whole": "complete, entire, atomic",
    r"honest\w*": "exact, tolerant",
    r"figures": "statistics, metrics, numbers, properties",
}
"""Pattern (between non-letters, any case) -> what to write instead."""

EXCEPTIONS: tuple[tuple[str, str], ...] = (
    ("aotforge/run/rootfs/assemble.py", "nobody"),  # the account of /etc/passwd
    ("aotforge/formats/archive.py", "tell"),  # io.IOBase
    ("aotforge/publish/fetch.py", "tell"),  # the same
)
"""Path and word (lower case) of standard names that are banned elsewhere."""

VAGUE_VARIABLES = frozenset({"found", "one"})
"""Names that do not state what a variable holds."""

SUFFIXES = {
    ".py",
    ".md",
    ".c",
    ".h",
    ".cc",
    ".cpp",
    ".hpp",
    ".cmake",
    ".yaml",
    ".yml",
    ".toml",
    ".sh",
    ".html",
    ".in",
    ".def",
    "",
}
_SKIPPED = (
    "tests/fixtures/",
    "tests/lint/",
    "runtime/fuzz/corpus",
    "compat/",
    "LICENSE",
    "releases/",
    "aotforge/release/licences/",
)
_WORD = re.compile(
    "|".join(f"(?P<w{number}>{pattern})" for number, pattern in enumerate(BANNED)), re.IGNORECASE
)
_BETTER = list(BANNED.values())
_BOUNDED = re.compile(rf"(?<![A-Za-z])(?:{_WORD.pattern})(?![A-Za-z])", re.IGNORECASE)


def files(paths: list[str]) -> Iterator[Path]:
    """Text files that people of this project write, in and below `paths`."""
    for name in sorted(project_files(ROOT)):
        path = ROOT / name
        wanted = not paths or any(path.is_relative_to(ROOT / listed) for listed in paths)
        if wanted and path.suffix in SUFFIXES and path.is_file() and not name.startswith(_SKIPPED):
            yield path


def violations(path: Path) -> Iterator[str]:
    """`path:line: word -> better` for each banned word of a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        for match in _BOUNDED.finditer(line):
            if (str(path.relative_to(ROOT)), match.group(0).lower()) in EXCEPTIONS:
                continue
            better = next(_BETTER[n] for n in range(len(_BETTER)) if match.group(f"w{n}"))
            yield f"{path.relative_to(ROOT)}:{number}: {match.group(0)} -> {better}"


def vague_variables(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every variable, parameter and function with a vague name; not of attributes."""
    tree = ast.parse(source)
    statements = [s for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for s in node.body]
    fields = {node for s in statements if not isinstance(s, ast.FunctionDef) for node in ast.walk(s)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                if name in VAGUE_VARIABLES and node not in fields:
                    yield node.lineno, name


def main(paths: list[str]) -> int:
    """Exit code 1 when a banned word was found."""
    lines = [line for path in files(paths) for line in violations(path)]
    print("\n".join(lines))  # noqa: T201
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
