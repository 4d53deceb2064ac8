"""Selection of kernels by `--only`, and of functionals by the values that a profile keeps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from aotforge.base.architectures import Profiles
from aotforge.base.manifest_reader import read_yaml
from aotforge.errors import ManifestError, UnknownNameError, suggest
from aotforge.plan.families import LoadedFamily
from aotforge.rules import Scalar

Keep = Mapping[str, tuple[Scalar, ...]]
"""The values of choices that a profile keeps, by the choice's name, or `family.choice` for one family."""
ONLY_SUFFIX = "-only"
"""Added to the profile's name in a plan of some kernels: such a plan is not complete."""


def same(left: Scalar, right: Scalar) -> bool:
    """Equality that distinguishes True from 1, as Python's does not."""
    return type(left) is type(right) and left == right


def keep_of(keep: Keep, family: str) -> Keep:
    """What a profile keeps of one family, by choice; `family.choice` replaces an entry for all families."""
    prefix = f"{family}."
    every = {name: values for name, values in keep.items() if "." not in name}
    return every | {
        name.removeprefix(prefix): values for name, values in keep.items() if name.startswith(prefix)
    }


def is_kept(keep: Keep, choice: str, value: Scalar) -> bool:
    """Whether a profile that keeps `keep` of a family keeps this value."""
    return choice not in keep or any(same(value, kept) for kept in keep[choice])


class Only:
    """The kernels that `--only` names: families, kernels (`kernel` or `family.kernel`), operators; else all.

    With `operators`, every kernel of an operator whose kernel is named: a pack serves an operator completely.
    """

    def __init__(self, names: Sequence[str] = (), *, operators: bool = False) -> None:
        self.names = tuple(names)
        self._operators = operators

    def kernels(self, known: Iterable[tuple[str, str, str]]) -> frozenset[tuple[str, str]]:
        """(family, kernel) of the named, from (family, kernel, operator) of all. Raises UnknownNameError."""
        rows = list(known)
        if not self.names:
            return frozenset((family, kernel) for family, kernel, _ in rows)
        spelled = {row: {row[0], row[1], f"{row[0]}.{row[1]}", row[2], f"{row[0]}.{row[2]}"} for row in rows}
        every = sorted(set().union(*spelled.values()))
        for name in self.names:
            if name not in every:
                raise UnknownNameError(
                    f"--only {name}: no family, kernel or operator has this name", hint=suggest(name, every)
                )
        found = {row for row, names in spelled.items() if not names.isdisjoint(self.names)}
        served = {operator for _, _, operator in found}
        return frozenset(row[:2] for row in rows if row in found or (self._operators and row[2] in served))


def check_profiles(profiles: Profiles, families: Sequence[LoadedFamily], file: Path) -> None:
    """Raises ManifestError for entries that look misspelt: near a known name, or offered by no kernel."""
    for keys, fault, hint in _faults(profiles, families):
        raise ManifestError(f"{file}:{read_yaml(file).line(keys)}: {'.'.join(keys)}: {fault}", hint=hint)


def _faults(
    profiles: Profiles, families: Sequence[LoadedFamily]
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Keys of entries, what is wrong with each, and the next step."""
    for name, profile in profiles.profiles.items():
        for entry, values in profile.keep.items():
            keys = ("profiles", name, "keep", entry)
            family, dot, choice = entry.rpartition(".")
            names = [loaded.family.name for loaded in families]
            if dot and family not in names:
                if (hint := suggest(family, names)).startswith("perhaps"):
                    yield keys, f"unknown family {family}", hint
                continue  # a checkout without that family
            offered = _options(loaded for loaded in families if not dot or loaded.family.name == family)
            if choice not in offered:
                hint = suggest(choice, offered)
                if dot or hint.startswith("perhaps"):
                    yield keys, "unknown choice", hint
                continue
            for value in values:
                if not any(same(value, option) for option in offered[choice]):
                    shown = ", ".join(sorted({repr(option) for option in offered[choice]}))
                    yield keys, f"no kernel offers {value!r}", f"offered: {shown}"


def _options(families: Iterable[LoadedFamily]) -> dict[str, list[Scalar]]:
    options: dict[str, list[Scalar]] = {}
    for kernel in (kernel for loaded in families for kernel in loaded.family.kernels):
        for choice in kernel.choices:
            options.setdefault(choice.name, []).extend(choice.options)
    return options
