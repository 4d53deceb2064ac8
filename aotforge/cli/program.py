"""The program `./dev`: finds the task of a command line, parses its flags, runs it; help and list."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from textwrap import fill

from aotforge.cli.command import (
    INSTALLED,
    ROOT,
    TASKS,
    exit_codes,
    print_either,
    print_result,
    requests_events,
)
from aotforge.cli.examples import example_lines
from aotforge.cli.flags import REQUIRED, Task, near, parse_flags
from aotforge.errors import ToolchainError, UsageError

GROUPS: Mapping[str, Sequence[str]] = {
    "Use": (
        *("demo", "compat.which", "install", "release.dropin", "release.list"),
        *("compat.show", "compat.explain", "virtual-hip"),
        *("hardware.check", "hardware.import"),
    ),
    "Build": (
        *(
            "build",
            "build.windows",
            "compile",
            "verify",
            "status",
            "report",
            "config.show",
            "doctor",
            "source.images",
            "images.ls",
            "images.cat",
            "coverage",
            "dl.build",
            "dl.forward",
        ),
        *("containers.lock", "containers.shell", "containers.prune"),
        *("cache.show", "cache.prune"),
    ),
    "Kernels": ("plan", "compile.job", "debug", "cost", "tune", "emulator", "run", "python"),
    "Release": (
        *(
            "release",
            "release.hf-kernel",
            "check",
            "release.verify",
            "release.diff",
            "release.reproduce",
            "release.keys",
        ),
        *("release.publish", "release.yank", "release.renew", "release.mirror", "release.page"),
        *("release.pins"),
    ),
    "Project and CI": (
        *("lint", "test", "bench", "docs", "wheel", "completion"),
        "ci.matrix",
    ),
}
"""Every task, by what it is for; most used first."""

_OVERVIEW = """\
aotforge {release}: ahead-of-time compiled Triton kernels for AMD GPUs, and the library that serves them.
It builds and verifies without a GPU. {hardware}

  ./dev demo                                      attention on a virtual gfx908, with its error
  ./dev compat.which --pytorch 2.9 --arch gfx908  what to install for a PyTorch
  ./dev build --arch gfx908                       compile, verify and pack a release
  ./dev release.dropin --pytorch-lib TORCH/LIB    put the newest build into an installed PyTorch
  ./dev verify --arch gfx908                      execute every image on the virtual GPU

./dev --list        all tasks
./dev TASK --help   the flags of a task (also -h)
./dev --version     release, API level, Triton
Short flags: -h is --help, -j N is --jobs N, -q is --quiet. README.md is the introduction."""

_INSTALLED_OVERVIEW = """\
aotforge {release}: ahead-of-time compiled Triton kernels for AMD GPUs, and the library that serves them.
These are the tasks for users of releases; kernels are built from a checkout of the repository.

  aotforge compat --pytorch 2.9 --arch gfx908                   what to install for a PyTorch
  aotforge install --pytorch-lib auto --arch gfx908 --from URL  a published release into the PyTorch here
  aotforge dropin --pytorch-lib auto --release FOLDER           a release folder into the PyTorch here

aotforge --list        all tasks
aotforge TASK --help   the flags of a task (also -h)
aotforge --version     release, API level, Triton"""

_SEPARATORS = f"{os.pathsep};$"
"""Of folders in LD_LIBRARY_PATH, and the start of its variables, as $ORIGIN."""

_HELP = ("-h", "--help")
_WIDTH = 110


def main(words: Sequence[str]) -> None:
    """Runs a command line; exits with the code of its error."""
    try:
        with exit_codes(json="--json" in words, events=requests_events(words)):
            run(words)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def run(words: Sequence[str]) -> None:
    """Runs a command line. Raises UsageError and what the task raises."""
    first, *rest = words or ("--help",)
    options: Mapping[str, Callable[[], None]] = {
        "--list": lambda: _print_list(json="--json" in rest),
        "--version": lambda: _print_version(json="--json" in rest),
    }
    if first in options:
        options[first]()
    elif first in {*_HELP, "help"}:
        names = [word for word in rest if word not in _HELP]
        print_result(task_help(find_task(names[0])) if names else _overview())
    elif first.startswith("-"):
        guess = near(first, [*options, "--help"])
        raise UsageError(
            f"./dev has no option {first}",
            cause=f"perhaps you meant {guess}" if guess else "flags follow the name of a task",
            hint=f"./dev {guess}" if guess else "./dev --help",
        )
    else:
        task = find_task(first)
        if any(word in _HELP for word in rest) and task.name != "emulator":  # which has help of its own
            print_result(task_help(task))
            return
        _check_module_path()
        if task.forwards:
            task.body(arguments=rest)
        else:
            task.body(**parse_flags(task, rest))


def _check_module_path() -> None:
    """Raises ToolchainError where a list of folders for a child process, as PYTHONPATH, would have other folders than those meant."""
    with suppress(OSError):  # without a folder for temporary files; what needs one reports it
        modules = ((str(folder), os.pathsep) for folder in sys.path)
        for folder, refused in ((tempfile.gettempdir(), _SEPARATORS), *modules):
            if odd := next((one for one in folder if one in refused), ""):
                raise ToolchainError(
                    f"{folder} has {odd!r} in its path",
                    cause="PYTHONPATH or LD_LIBRARY_PATH of child processes would name other folders",
                    hint="TMPDIR names another folder for temporary files; Python's modules cannot be in one with this name",
                )


def _overview() -> str:
    if INSTALLED:
        return _INSTALLED_OVERVIEW.format(release=_version()["release"])
    # names of files alone: reading manifests takes longer than the rest of the page
    archs = sorted({path.name.split("-")[0] for path in (ROOT / "manifests" / "hardware").glob("gfx*.yaml")})
    hardware = (
        f"AMD GPUs that images have run on: {', '.join(archs)}."
        if archs
        else "No image has run on an AMD GPU yet."
    )
    return _OVERVIEW.format(release=_version()["release"], hardware=hardware)


def find_task(name: str) -> Task:
    """Raises UsageError with the nearest name."""
    if name in TASKS:
        return TASKS[name]
    guess = near(name, TASKS)
    members = sorted(task for task in TASKS if task.startswith(f"{name}."))
    cause = f"did you mean {guess}?" if guess else ""
    if members:
        cause = f"tasks of {name}: {', '.join(members)}"
    raise UsageError(
        f"{name} is not a task", cause=cause, hint=f"./dev {guess} --help" if guess else "./dev --list"
    )


def task_help(task: Task) -> str:
    """Usage, summary, flags and examples."""
    usage = task.usage + (" [FLAGS]" if task.flags else "")
    rows = [*flag_rows(task), ("-h, --help", "print this text")]
    examples = example_lines(task.name)
    shown = ["", "Examples:", *(f"  {line}" for line in examples)] if examples else []
    return "\n".join([f"Usage: {usage}", "", _wrapped(task.summary), "", *_columns(rows), *shown])


def flag_rows(task: Task) -> list[tuple[str, str]]:
    """Spelling and help of every flag, the required ones first."""
    flags = sorted(task.flags, key=lambda flag: (flag.default is not REQUIRED, flag.name))
    return [
        (flag.spelling, flag.help + (" (required)" if flag.default is REQUIRED else "")) for flag in flags
    ]


def _print_list(*, json: bool) -> None:
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Other": [name for name in TASKS if name not in grouped]}
    lines: list[str] = []
    for group, names in groups.items():
        if any(name in TASKS for name in names):
            lines += [group, *_columns([(name, TASKS[name].summary) for name in names if name in TASKS]), ""]
    lines.append("./dev TASK --help prints the flags of a task.")
    print_either({name: task.summary for name, task in TASKS.items()}, lines, json=json)


def _print_version(*, json: bool) -> None:
    found = _version()
    text = f"aotforge {found['release']} (API level {found['api_level']}, Triton {found['triton']})"
    print_either(found, [text], json=json)


def _version() -> dict[str, str]:
    """From the text of the manifests, which needs no installed package: a fresh checkout has none."""
    manifest = (ROOT / "manifests" / "release.yaml").read_text(encoding="utf-8")
    pins = (ROOT / "requirements" / "build.txt").read_text(encoding="utf-8")
    level, revision, triton = (
        found[1] if (found := re.search(pattern, text, re.MULTILINE)) else "unknown"
        for pattern, text in (
            (r"^api_level: *(\S+)", manifest),
            (r"^revision: *(\d+)", manifest),
            (r"^triton==(\S+)", pins),
        )
    )
    return {"release": f"{level}-r{revision}", "api_level": level, "triton": triton}


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Rows of a name and a text that is wrapped in its column."""
    rows = list(rows)
    width = min(max(len(name) for name, _ in rows), 32)
    indent = " " * (width + 4)
    lines = []
    for name, text in rows:
        head = f"  {name:{width}}  "
        body = _wrapped(text, first=indent, other=indent)
        lines += [head.rstrip(), body] if len(head) > len(indent) else [head + body[len(indent) :]]
    return lines


def _wrapped(text: str, *, first: str = "", other: str = "") -> str:
    width = max(60, min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns))
    return fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=other,
        break_on_hyphens=False,
        break_long_words=False,
    )
