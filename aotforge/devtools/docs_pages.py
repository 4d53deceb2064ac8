"""Pages of the documentation site: the Markdown of the checkout, and reference pages made from code.

Links between pages are rewritten to the pages' places on the site. A link to another file of the checkout is an error.
"""

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from aotforge.base.architectures import Architectures, Profiles
from aotforge.base.files import make_folders, output_errors
from aotforge.base.general_costs import GeneralCosts
from aotforge.base.hazards import Hazards
from aotforge.base.tuning import Tuning
from aotforge.conformance.matrix_models import Calls, Interface, Matrix
from aotforge.devtools.header_reference import header_section
from aotforge.errors import UnsupportedError
from aotforge.library.operator_functions import HEADER, function_sources
from aotforge.library.sources import DlManifest, RuntimeManifest
from aotforge.pipeline.ci_jobs.ci_manifest import CiManifest
from aotforge.release.model import ReleaseManifest
from aotforge.release.record import Record
from aotforge.sandbox.rootfs.definitions import Containers, Definition

ROOT_PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""Pages beside docs/, with their places on the site."""

MANIFESTS: Mapping[str, type[BaseModel]] = {
    "manifests/architectures.yaml": Architectures,
    "manifests/ci.yaml": CiManifest,
    "manifests/containers.yaml": Containers,
    "manifests/dl.yaml": DlManifest,
    "manifests/general_costs.yaml": GeneralCosts,
    "manifests/hazards.yaml": Hazards,
    "manifests/profiles.yaml": Profiles,
    "manifests/release.yaml": ReleaseManifest,
    "manifests/runtime.yaml": RuntimeManifest,
    "manifests/tuning/ARCH.yaml": Tuning,
    "compat/api_levels.yaml": Interface,
    "compat/pytorch.yaml": Matrix,
    "compat/pytorch_calls.yaml": Calls,
    "docker/rocm/NAME.yaml": Definition,
    "releases/RELEASE.json": Record,
}
"""Files that people write or commit, and the models that read them."""

_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?(?=\))")
_HEADERS = ("runtime/include/aotriton", "runtime/include/aotforge")


def write_pages(root: Path, folder: Path) -> None:
    """Writes every page of the checkout `root` below `folder`. Raises UnsupportedError for a link out of the site, OutputError."""
    sources = {name: place for name, place in ROOT_PAGES.items() if (root / name).is_file()}
    for path in sorted((root / "docs").rglob("*.md")):
        name = path.relative_to(root).as_posix()
        sources[name] = name.removeprefix("docs/")
    pages = {
        place: moved_links((root / name).read_text(encoding="utf-8"), name, sources)
        for name, place in sources.items()
    }
    pages |= manifest_pages()
    pages["reference/headers.md"] = headers_page(root)
    for place, text in pages.items():
        with output_errors(folder / place):
            make_folders((folder / place).parent)
            (folder / place).write_text(text, encoding="utf-8")


def moved_links(text: str, name: str, places: Mapping[str, str]) -> str:
    """The page `name` with links to pages as they are at `places`; code is left as it is. Raises UnsupportedError."""
    parts, last = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_moved(text[last : fence.start()], name, places), fence.group()]
        last = fence.end()
    return "".join([*parts, _moved(text[last:], name, places)])


def _moved(text: str, name: str, places: Mapping[str, str]) -> str:
    here = posixpath.dirname(places[name])

    def replace(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
        if target not in places:
            raise UnsupportedError(
                f"{name} links to {found[1]}, which is not a page of the site",
                cause="the file does not exist, or is not Markdown",
                hint="write its path as code, or correct the link",
            )
        return posixpath.relpath(places[target], here or ".") + (found[2] or "")

    return _LINK.sub(replace, text)


def manifest_pages() -> dict[str, str]:
    """A page with every manifest's keys, and a JSON schema for each beside it."""
    parts = [
        "# Manifests\n",
        "Files that people write, and the release's record. This page is made from the models that read them.",
        "An unknown key is an error that names file, line and key (exit code 4).\n",
    ]
    pages = {}
    for file, model in MANIFESTS.items():
        schema = model.model_json_schema(by_alias=True)
        name = file.replace("/", "-").rpartition(".")[0]
        pages[f"reference/schemas/{name}.json"] = json.dumps(schema, indent=1, sort_keys=True) + "\n"
        parts += [f"## {file}\n", f"{_first_line(model)} [JSON schema](schemas/{name}.json)\n"]
        parts += ["| key | type | required |", "|---|---|---|"]
        required = schema.get("required", ())
        for key, value in schema["properties"].items():
            needed = "yes" if key in required else f"no: {_default(value)}"
            parts.append(f"| `{key}` | {_type_name(value)} | {needed} |")
        parts.append("")
    return {"reference/manifests.md": "\n".join(parts), **pages}


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n")[0]


def _default(value: Mapping[str, object]) -> str:
    return f"`{json.dumps(value['default'])}`" if "default" in value else "empty"


def _type_name(value: Mapping[str, object]) -> str:
    """A key's type in a word or two: `string`, `list of Row`, `string or null`."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "const" in value or "enum" in value:
        known = value.get("enum", [value.get("const")])
        assert isinstance(known, list)
        return " or ".join(f"`{json.dumps(one)}`" for one in known)
    if isinstance(either := value.get("anyOf"), list):
        return " or ".join(_type_name(one) for one in either)
    if value.get("type") == "array" and isinstance(items := value.get("items"), dict):
        return f"list of {_type_name(items)}"
    if value.get("type") == "object":
        patterns = value.get("patternProperties")
        values = (
            next(iter(patterns.values())) if isinstance(patterns, dict) else value.get("additionalProperties")
        )
        return f"map to {_type_name(values)}" if isinstance(values, dict) else "map"
    return str(value.get("type", "any"))


def headers_page(root: Path) -> str:
    """Declarations of the public headers, and of the one that a build writes for the functions of all kernel families."""
    texts = {
        path.relative_to(root / "runtime" / "include").as_posix(): path.read_text(encoding="utf-8")
        for folder in _HEADERS
        for path in sorted((root / folder).rglob("*.h"))
    }
    texts[HEADER.removeprefix("include/")] = function_sources(root / "kernels")[HEADER]
    parts = [
        "# C++ headers\n",
        "Declarations of the public headers. This page is made from `runtime/include`.\n",
    ]
    for name, text in texts.items():
        parts += header_section(name, text)
    return "\n".join(parts)
