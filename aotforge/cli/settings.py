"""The checkout, its home folder, aotforge.toml with settings that are not flags, and variables."""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from aotforge.errors import ManifestError, suggest
from vgpu.cache import user_home

_DATA = Path(__file__).resolve().parents[1] / "data"
INSTALLED = _DATA.is_dir()
"""True for the installed wheel, whose tasks read files of a checkout from `aotforge/data`."""

ROOT = _DATA if INSTALLED else Path(__file__).resolve().parents[2]
_USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache") / "aotforge"
HOME = Path(os.environ.get("AOTFORGE_HOME") or (_USER_CACHE if INSTALLED else ROOT / ".aotforge"))
FILE = "aotforge.toml"

_VARIABLE = re.compile(r"default: (AOTFORGE_[A-Z_]+)")
_NAMES: Mapping[type, str] = {str: "a text", bool: "true or false", int: "an integer", float: "a number"}


def setting(name: str, text: str) -> Any:
    """A request's field in aotforge.toml; None without one, or where a variable of its help is set."""
    variable = _VARIABLE.search(text)
    return None if variable and os.environ.get(variable[1]) else load_settings(ROOT).get(name)


@cache
def load_settings(folder: Path) -> dict[str, Any]:
    """Fields by name; keys have dashes or underscores. Raises ManifestError."""
    path = folder / FILE
    if not path.exists():
        return {}
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path} is not valid TOML: {error}", hint="key = value, a line each") from None
    known, settings = _kinds(), {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise ManifestError(
                f"{path} has an unknown key {key}",
                hint=suggest(key, [known_key.replace("_", "-") for known_key in known]),
            )
        settings[name] = float(value) if known[name] is float and type(value) is int else value
        if type(settings[name]) is not known[name]:
            raise ManifestError(f"{path}: {key} = {value!r} is not {_NAMES[known[name]]}")
    return settings


def _kinds() -> dict[str, type]:
    """Type of every setting: fields of requests with a help text."""
    from aotforge.pipeline.requests import BuildRequest

    return {
        field.name: kind_of(get_args(field.type)[0])
        for field in fields(BuildRequest)
        if get_origin(field.type) is not None
    }


def project_facts(root: Path) -> dict[str, tuple[str, str]]:
    """Defaults of the project's files with the file, from its text: loading manifests takes longer."""
    facts = {}
    for name, file, pattern in (
        ("profile", "manifests/profiles.yaml", r"^default: *(\S+)"),
        ("version", "manifests/release.yaml", r"^api_level: *(\S+)"),
        ("revision", "manifests/release.yaml", r"^revision: *(\S+)"),
        ("triton", "requirements/build.txt", r"^triton==(\S+)"),
    ):
        match = re.search(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        facts[name] = (match[1] if match else "unknown", file)
    return facts


def kind_of(annotation: Any) -> type[Any]:
    """What a flag's value is: bool, int, float, list for a Sequence, else str, which paths are as well."""
    from collections.abc import Sequence

    kinds = {get_origin(part) or part for part in (annotation, *get_args(annotation))}
    return next(
        (kind for kind in (list, bool, int, float) if (Sequence if kind is list else kind) in kinds), str
    )


VARIABLES: dict[str, str] = {
    "AOTFORGE_HOME": "folder of the environment and the cache (default: .aotforge of the checkout)",
    "AOTFORGE_PYTHON": "Python that the environment is made with (default: 3.11 to 3.15 on PATH)",
    "AOTFORGE_CACHE": "cache folder (default: cache in AOTFORGE_HOME)",
    "AOTFORGE_STRICT": "1: a cache that other users can change is an error instead of a warning",
    "AOTFORGE_SOURCES": "folders and URLs with packages and source archives, for machines without a network",
    "AOTFORGE_CACHE_FROM": "shared cache to read from",
    "AOTFORGE_FROM": "place of releases, for install",
    "AOTFORGE_ROOT": "root of trust of that place, a file",
    "AOTFORGE_KEYS": "folder of the keys that sign its index",
    "AOTFORGE_SIGNING_KEY": "Ed25519 key of releases and reports, a file or its text",
    "AOTFORGE_VIRTUAL": "virtual HIP: key=value,... (docs/virtual-gpu-tools.md)",
    "AOTFORGE_ASM": "virtual HIP: assembly texts, folders and archives joined by colons",
    "TRITON_CPU_BACKEND": "1: Triton compiles for the CPU",
    "AOTFORGE_CPU_LEVEL": "a lower level of x86-64 than the processor's",
    "AOTRITON_LOG": "library: off, error, warn, info or debug on standard error",
    "AOTRITON_IMAGES_DIR": "library: folder of image packs (default: beside the library)",
    "AOTFORGE_PARTIAL_PACK": "library: 1 permits packs that do not serve every call",
    "AOTFORGE_ATTENTION": "attention package: 0 loads nothing, 1 also without a GPU",
}
"""Environment variables of our own that programs read: what each is for, with its default."""
