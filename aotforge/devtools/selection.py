"""Selection of a kernel, one of its functionals and a case by the user's names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.plan.families import LoadedFamily, load_families
from aotforge.rules import Functional, Kernel
from aotforge.verify.invocation import Case


def find_kernel(root: Path, name: str) -> tuple[LoadedFamily, Kernel]:
    """A kernel by `kernel` or `family.kernel`. Raises UnknownNameError, UnsupportedError when several have
    the name."""
    families = load_families(root / "kernels")
    every = {f"{one.family.name}.{k.name}": (one, k) for one in families for k in one.family.kernels}
    found = [value for full, value in every.items() if name in {full, full.partition(".")[2]}]
    if not found:
        raise UnknownNameError(f"unknown kernel {name}", hint=suggest(name, every))
    if len(found) > 1:
        raise UnsupportedError(f"several families have a kernel {name}", hint="name it as family.kernel")
    return found[0]


def choose(kernel: Kernel, keys: Mapping[str, str]) -> Functional:
    """A functional that the kernel serves with the options that `keys` name; others are the first that fit.

    Raises UnknownNameError for a choice or option that it does not have, UnsupportedError for a combination
    that it does not serve.
    """
    names = {choice.name: choice for choice in kernel.choices}
    if unknown := sorted(set(keys) - set(names)):
        raise UnknownNameError(f"{kernel.name} has no choice {unknown[0]}", hint=suggest(unknown[0], names))
    options: list[Functional] = [{}]
    for name, choice in names.items():
        offered = {str(option): option for option in choice.options}
        if name in keys and _spelt(keys[name]) not in offered:
            hint = suggest(keys[name], offered)
            raise UnknownNameError(f"{kernel.name} does not offer {name} = {keys[name]}", hint=hint)
        kept = [offered[_spelt(keys[name])]] if name in keys else list(choice.options)
        options = [{**one, name: option} for one in options for option in kept]
    served = [one for one in options if kernel.allowed(one)]
    if not served:
        wanted = ", ".join(f"{name} = {value}" for name, value in keys.items())
        raise UnsupportedError(f"{kernel.name} does not serve {wanted}")
    return served[0]


def _spelt(text: str) -> str:
    return text.capitalize() if text in {"true", "false"} else text


def key_numbers(kernel: Kernel, functional: Functional) -> dict[str, int]:
    """The functional as `cases` takes it: numbers by operator value."""
    return {choice.key: choice.options[functional[choice.name]] for choice in kernel.choices}


def find_case(cases: Sequence[Case], name: str | None) -> Case:
    """A case by name, or by the only one that starts so; the first one for None. Raises UnknownNameError,
    UnsupportedError."""
    if name is None:
        return cases[0]
    exact = [case for case in cases if case.name == name]
    found = exact or [case for case in cases if case.name.startswith(name)]
    if not found:
        raise UnknownNameError(f"unknown case {name!r}", hint=suggest(name, (case.name for case in cases)))
    if len(found) > 1:
        names = ", ".join(case.name for case in found)
        raise UnsupportedError(f"several cases start with {name!r}", hint=names)
    return found[0]
