"""Selection of a kernel, one of its functionals and a case by the user's names."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aotforge.errors import UnknownNameError, UnsupportedError, suggest
from aotforge.plan.families import LoadedFamily, load_families
from aotforge.rules import Functional, Kernel
from aotforge.verify.invocation import Case


def find_kernel(root: Path, name: str) -> tuple[LoadedFamily, Kernel]:
    """A kernel by `kernel` or `family.kernel`. Raises UnknownNameError, UnsupportedError when several have
    the name."""
    families = load_families(root / "kernels")
    every = {
        f"{loaded.family.name}.{k.name}": (loaded, k) for loaded in families for k in loaded.family.kernels
    }
    matching = [value for full, value in every.items() if name in {full, full.partition(".")[2]}]
    if not matching:
        raise UnknownNameError(f"unknown kernel {name}", hint=suggest(name, every))
    if len(matching) > 1:
        raise UnsupportedError(f"several families have a kernel {name}", hint="name it as family.kernel")
    return matching[0]


def require_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raises UnknownNameError for the first name that is not known: `what` lacks it."""
    if unknown := sorted(set(names) - set(known)):
        raise UnknownNameError(f"{what} {unknown[0]}", hint=suggest(unknown[0], known))


def integers(texts: Mapping[str, str], what: str) -> dict[str, int]:
    """Numbers that a user wrote. Raises UnsupportedError."""
    try:
        return {name: int(text) for name, text in texts.items()}
    except ValueError as error:
        raise UnsupportedError(f"{what} must be integers: {error}") from error


def choose(kernel: Kernel, keys: Mapping[str, str]) -> Functional:
    """A functional that the kernel serves with the options that `keys` name; others are the first that fit.

    Raises UnknownNameError for a choice or option that it does not have, UnsupportedError for a combination
    that it does not serve.
    """
    names = {choice.name: choice for choice in kernel.choices}
    require_known(keys, names, f"{kernel.name} has no choice")
    options: list[Functional] = [{}]
    for name, choice in names.items():
        offered = {str(option): option for option in choice.options}
        wanted = keys.get(name, "")
        spelt = wanted.capitalize() if wanted in {"true", "false"} else wanted
        if name in keys and spelt not in offered:
            hint = suggest(wanted, offered)
            raise UnknownNameError(f"{kernel.name} does not offer {name} = {wanted}", hint=hint)
        kept = [offered[spelt]] if name in keys else list(choice.options)
        options = [{**combination, name: option} for combination in options for option in kept]
    served = next((combination for combination in options if kernel.allowed(combination)), None)
    if served is None:
        text = ", ".join(f"{name} = {value}" for name, value in keys.items())
        raise UnsupportedError(f"{kernel.name} does not serve {text}")
    return served


def key_numbers(kernel: Kernel, functional: Functional) -> dict[str, int]:
    """The functional as `cases` takes it: numbers by operator value."""
    return {choice.key: choice.options[functional[choice.name]] for choice in kernel.choices}


def find_case(cases: Sequence[Case], name: str | None) -> Case:
    """A case by name, or by the only one that starts so; the first one for None. Raises UnknownNameError,
    UnsupportedError."""
    matching = [case for case in cases if name is None or case.name.startswith(name)]
    if not matching:
        raise UnknownNameError(f"unknown case {name!r}", hint=suggest(name or "", (c.name for c in cases)))
    exact = next((case for case in matching if case.name == name), None)
    if exact is None and name is not None and len(matching) > 1:
        names = ", ".join(case.name for case in matching)
        raise UnsupportedError(f"several cases start with {name!r}", hint=names)
    return exact or matching[0]
