"""Mutants of C++ sources, all in one build: the environment variable AOTFORGE_MUTANT chooses one.

Conditions of `if`, `while`, `return` and `require`, clause by clause: false, true, and the other boundary of
a comparison; bounds of counts, one more and one less; assignments and calls left out. Found in the text,
without a parser: what has another form than the sources' style is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

HEADER = """#pragma once
#include <cstdlib>
namespace aotforge_mutants {
inline bool on(int number) {
  static const char* text = std::getenv("AOTFORGE_MUTANT");
  static const int chosen = text ? std::atoi(text) : 0;
  return chosen == number;
}
inline bool flag(int number, bool value) { return on(number) ? false : on(number + 1) ? true : value; }
template <typename A> A bound(int number, A value) {
  return on(number) ? value + 1 : on(number + 1) ? value - 1 : value;
}
template <typename A, typename B> bool less(int n, const A& a, const B& b) { return on(n) ? a <= b : a < b; }
template <typename A, typename B>
bool less_equal(int n, const A& a, const B& b) { return on(n) ? a < b : a <= b; }
template <typename A, typename B>
bool greater(int n, const A& a, const B& b) { return on(n) ? a >= b : a > b; }
template <typename A, typename B>
bool greater_equal(int n, const A& a, const B& b) { return on(n) ? a > b : a >= b; }
}
"""
_NAMES = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_CALL = re.compile(
    r"^(\s+)(?!return\b|if\b|for\b|while\b|else\b|switch\b|case\b|throw\b|using\b)([A-Za-z_][\w.:>\-\[\]]*\(.*\);)$"
)
_ASSIGNMENT = re.compile(r"^(\s+)([A-Za-z_][\w.>\-\[\]]* (?:\||\+|-)?= [^{}]*;)$")

_OTHER = re.compile(r"aotforge_mutants|<<|\?|\{|^\s*(?:const|bool) ")
_COMPARED = re.compile(r" (?:==|!=|<|<=|>|>=|&&|\|\|) ")
_LEFT_ALONE = ("//", "#", "template", "static_assert", "log(")
"""Lines that no test has to notice: declarations, and texts of the log."""


def mutate(file: str, text: str, names: list[str]) -> str:
    """The source with all of its mutants in it. Their names are appended: mutant n is the n-th name.

    A name is stable: the text that is changed, what becomes of it, the occurrence.
    """

    def add(*changes: str) -> int:
        first = len(names) + 1
        for key in (f"{file}: {change}" for change in changes):
            count = sum(name.rpartition(" #")[0] == key or name == key for name in names)
            names.append(f"{key} #{count + 1}" if count else key)
        return first

    lines = [_mutated_line(line, add) for line in text.split("\n")]
    return '#include "mutants.h"\n#line 1\n' + "\n".join(lines)


def _mutated_line(line: str, add: Callable[..., int]) -> str:
    if "constexpr" in line or line.lstrip().startswith(_LEFT_ALONE) or ".reserve(" in line:
        return line
    new = _counts(line, add)
    for word in ("if (", "while (", "require(", "return "):
        new = _conditions(new, word, add)
    if new != line:
        return new
    match = _ASSIGNMENT.match(line) or _CALL.match(line)
    if match and match[2].count("(") == match[2].count(")"):  # else it belongs to the line before
        first = add(f"without {match[2]}")
        return f"{match[1]}if (!aotforge_mutants::on({first})) {match[2]}"
    return line


def _counts(line: str, add: Callable[..., int]) -> str:
    """The bounds in `count(value, low, high, least, reason)`."""

    def bounds(match: re.Match[str]) -> str:
        low, high = (
            f"aotforge_mutants::bound<uint32_t>({add(f'{one} + 1', f'{one} - 1')}, {match[at]})"
            for at, one in ((2, f"low of {match[4]}"), (3, f"high of {match[4]}"))
        )
        return f"{match[1]}, {low}, {high}, {match[4]}"

    return re.sub(r"(\bcount\([^,]*), (\d+), (\w+), ([^;]*\"[^\"]*\")", bounds, line)


def _conditions(line: str, word: str, add: Callable[..., int]) -> str:
    place = 0
    while (at := line.find(word, place)) >= 0:
        start = place = at + len(word)
        end = _end(line, start, ";" if word == "return " else ",)" if word == "require(" else ")")
        if end < 0:
            continue
        if word in ("if (", "while "):
            start += line[start:end].rfind(";") + 1
        condition = line[start:end]
        if _OTHER.search(condition) or (word == "return " and not _COMPARED.search(condition)):
            continue
        parts = _split(condition, ("&&", "||"))
        parts[::2] = [_clause(part, add) for part in parts[::2]]
        new = " ".join(parts)
        line = line[:start] + new + line[end:]
        place = start + len(new)
    return line


def _end(line: str, start: int, stops: str) -> int:
    """Where the expression from `start` ends: the first of `stops` outside of brackets and strings; -1 for
    another line."""
    depth, quoted = 0, False
    for at in range(start, len(line)):
        letter = line[at]
        quoted ^= letter == '"'
        if quoted:
            continue
        if depth == 0 and letter in stops:
            return at
        depth += letter in "([{"
        depth -= letter in ")]}"
        if depth < 0:
            return -1
    return -1


def _split(text: str, operators: tuple[str, ...]) -> list[str]:
    """Parts and operators in turn, split outside of brackets."""
    parts, depth, last, at = [], 0, 0, 0
    while at < len(text):
        depth += text[at] in "(["
        depth -= text[at] in ")]"
        for operator in operators:
            if depth == 0 and text.startswith(f" {operator} ", at):
                parts += [text[last:at], operator]
                at += len(operator) + 1
                last = at + 1
                break
        at += 1
    return [*parts, text[last:]]


def _clause(text: str, add: Callable[..., int]) -> str:
    plain = text.strip()
    if " = " in plain or not plain:
        return text
    first = add(f"{plain} -> false", f"{plain} -> true")
    sides = _split(plain, tuple(_NAMES))
    if len(sides) == 3:
        boundary = add(f"{plain} -> other boundary")
        plain = f"aotforge_mutants::{_NAMES[sides[1]]}({boundary}, {sides[0]}, {sides[2]})"
    return f"aotforge_mutants::flag({first}, static_cast<bool>({plain}))"
