"""The programs `./dev` and `aotforge`: invoke's `Program` with the errors and exit codes of aotforge."""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from invoke.collection import Collection
from invoke.config import Config
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.parser.parser import Parser
from invoke.program import Program

from aotforge.cli.output import exit_codes, print_result
from aotforge.cli.settings import INSTALLED, ROOT, project_facts
from aotforge.errors import UsageError

PROGRAM = "aotforge" if INSTALLED else "./dev"
_CORE = {
    *("help", "list", "list-depth", "list-format", "version", "complete", "print-completion-script"),
    *("debug", "write-pyc"),
}
_HELP = {"-h", "--help"}
_INTRODUCTION = """\
aotforge {version}: ahead-of-time compiled Triton kernels for AMD GPUs, and the library that serves them.

  {program} demo                                  attention on a virtual gfx908, with its error
  {program} compat --pytorch 2.9 --arch gfx908    what to install for a PyTorch
  {program} build --arch gfx908                   compile, verify and pack a release
  {program} dropin --pytorch-lib TORCH/LIB        put the newest build into an installed PyTorch

{program} --list: all tasks. {program} TASK --help: its flags. README.md is the introduction."""


class LazyConfig(Config):
    """invoke's settings without its files and variables: aotforge.toml has ours."""

    def __init__(self, **options: object) -> None:
        super().__init__(lazy=True)
        self.merge()

    def load_shell_env(self) -> None:
        """Reads no variable INVOKE_*."""


class AotforgeProgram(Program):
    """The tasks of a collection; raises UsageError for a command line that cannot be parsed."""

    def core_args(self) -> list[Argument]:
        """Those of invoke that are not about commands which tasks run."""
        return [argument for argument in super().core_args() if argument.names[0] in _CORE]

    def parse_core(self, argv: list[str] | None) -> None:
        """Parses them; modules are compiled once, which invoke's own program never keeps."""
        before = sys.dont_write_bytecode
        super().parse_core(argv)
        sys.dont_write_bytecode = before

    def _make_parser(self) -> Parser:
        parser = super()._make_parser()
        for context in parser.contexts.values():
            for argument in context.args.values():
                argument.context = context  # completion needs it where a value is refused
        return parser

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:
        """Runs a command line. Raises UsageError and what the task raises."""
        words = list(argv or [PROGRAM])
        names = [word for word in words[1:] if not word.startswith("-")]
        if names and _HELP & {*words} and words[1] not in _HELP:
            words = [words[0], "--help", names[0]]  # invoke takes --help for the value of a required flag
        try:
            self.create_config()
            self.parse_core(words)
            self.parse_collection()
            self.parse_tasks()
            self.parse_cleanup()
            self.execute()
        except Exit as ended:
            if ended.message:
                raise UsageError(ended.message, hint=f"{PROGRAM} --list") from None
        except ParseError as error:
            self._refuse(str(error), names[0] if names else "")

    def _refuse(self, text: str, name: str) -> NoReturn:
        """Raises UsageError for what invoke could not parse."""
        tasks = {
            alias: task
            for task in self._make_parser().contexts.values()
            for alias in (task.name, *task.aliases)
        }
        word = match[1] if (match := re.search(r"(?:No idea what '|unknown flag )([^']*)", text)) else ""
        hint = f"{PROGRAM} --list"
        if (task := tasks.get(name)) is None:
            word = name or word
            known = sorted(tasks) if name else [f"--{flag}" for flag in sorted(_CORE)]
            what = f"{word} is not a {'task' if name else 'flag'}"
        else:
            known, hint = [*task.flags, *task.inverse_flags], f"{PROGRAM} {name} --help"
            kind = f"has no flag {word}" if word.startswith("-") else f"takes no argument {word!r}"
            what = f"{name} {kind}" if word else _reworded(text, name)
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) if word else ()
        if task and not near and word[:1] not in ("", "-") and "--arch" in task.flags:
            hint = f"{PROGRAM} {name} --arch ARCH: a value needs the name of its flag, which is given once"
        raise UsageError(what, cause=f"did you mean {near[0]}?" if near else "", hint=hint) from None

    def print_version(self) -> None:
        """Prints release, API level and Triton."""
        print_result(f"aotforge {version()}")

    def no_tasks_given(self) -> None:
        """Prints the common tasks."""
        print_result(_INTRODUCTION.format(version=version(), program=PROGRAM))
        raise Exit

    def print_help(self) -> None:
        """Prints the common tasks for `--help` alone."""
        self.no_tasks_given()


def _reworded(text: str, name: str) -> str:
    """invoke's message without its representation of arguments."""
    if flag := re.search(r"Flag <\w+: (\S+?)[ >].*needed value", text):
        return f"{name}: --{flag[1].strip('_').replace('_', '-')} needs a value"
    if "did not receive" in text:
        return f"{name} needs " + " and ".join(
            f"--{flag_name.replace('_', '-').strip('-')}" for flag_name in re.findall(r"'([^']*)'", text)[1:]
        )
    return f"{name}: {text}"


def run(collection: Collection, words: Sequence[str]) -> None:
    """Runs a command line. Raises UsageError; tasks exit with the code of their error."""
    program = AotforgeProgram(
        namespace=collection, name="aotforge", binary=PROGRAM, config_class=LazyConfig,
        binary_names=["aotforge"] if INSTALLED else ["dev", "./dev"],
    )  # fmt: skip
    program.run([PROGRAM, *words])


def main(collection: Collection, words: Sequence[str]) -> None:
    """Runs a command line; exits with the code of its error."""
    try:
        with exit_codes(json="--json" in words, events="--progress=json" in words or "json" in words):
            run(collection, words)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def version() -> str:
    """Release, API level and Triton."""
    facts = project_facts(ROOT)
    level, revision, triton = (facts[name][0] for name in ("version", "revision", "triton"))
    return f"{level}-r{revision} (API level {level}, Triton {triton})"
