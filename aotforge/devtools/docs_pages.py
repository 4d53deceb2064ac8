"""Pages of the documentation site: the Markdown of the checkout, and reference pages made from code."""

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
from aotforge.library.operator_functions import HEADER, function_sources
from aotforge.library.sources import RuntimeManifest
from aotforge.release.model import ReleaseManifest
from aotforge.release.record import Record
from aotforge.run.rootfs.definitions import Definition

ROOT_PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
"""Pages beside docs/, with their places on the site."""

MANIFESTS: Mapping[str, type[BaseModel]] = {
    "manifests/architectures.yaml": Architectures,
    "manifests/general_costs.yaml": GeneralCosts,
    "manifests/hazards.yaml": Hazards,
    "manifests/profiles.yaml": Profiles,
    "manifests/release.yaml": ReleaseManifest,
    "manifests/runtime.yaml": RuntimeManifest,
    "manifests/tuning/ARCH.yaml": Tuning,
    "compat/api_levels.yaml": Interface,
    "compat/pytorch.yaml": Matrix,
    "compat/pytorch_calls.yaml": Calls,
    "docker/NAME.yaml": Definition,
    "releases/RELEASE.json": Record,
}
"""Files that people write or commit, and the models that read them."""

_LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)(?=[#)])")


def write_pages(root: Path, folder: Path) -> None:
    """Writes every page of the checkout `root` below `folder`. Raises OutputError."""
    places = {name: place for name, place in ROOT_PAGES.items() if (root / name).is_file()}
    for path in sorted((root / "docs").rglob("*.md")):
        name = path.relative_to(root).as_posix()
        places[name] = name.removeprefix("docs/")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in places}
    pages = {place: moved_links(texts[name], name, places) for name, place in places.items()}
    pages |= manifest_pages() | {"reference/headers.md": headers_page(root)}
    with output_errors(folder):
        for place, text in pages.items():
            make_folders((folder / place).parent)
            (folder / place).write_text(text, encoding="utf-8")


def moved_links(text: str, name: str, places: Mapping[str, str]) -> str:
    """The page `name` with links to pages as they are at `places`; mkdocs refuses links to anything else."""

    def replace(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), found[1]))
        here = posixpath.dirname(places[name]) or "."
        return posixpath.relpath(places[target], here) if target in places else found[1]

    return _LINK.sub(replace, text)


def manifest_pages() -> dict[str, str]:
    """A page with every manifest's keys, and a JSON schema for each beside it."""
    parts = [
        "# Manifests\n",
        "Files that people write, and the release's record, as the models read them.",
        "An unknown key is an error that names file, line and key.\n",
    ]
    pages = {}
    for file, model in MANIFESTS.items():
        schema = model.model_json_schema(by_alias=True)
        name = file.replace("/", "-").rpartition(".")[0]
        pages[f"reference/schemas/{name}.json"] = json.dumps(schema, indent=1, sort_keys=True) + "\n"
        about = (model.__doc__ or "").strip().partition("\n")[0]
        parts.append(f"## {file}\n\n{about} [JSON schema](schemas/{name}.json)\n")
        needed = schema.get("required", ())
        parts += [f"- `{key}`{'' if key in needed else ', optional'}" for key in schema["properties"]]
        parts.append("")
    return {"reference/manifests.md": "\n".join(parts), **pages}


def headers_page(root: Path) -> str:
    """The public headers, and the one that a build writes for the functions of all kernel families."""
    include = root / "runtime" / "include"
    texts = {
        path.relative_to(include).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(include.rglob("*.h"))
    }
    texts[HEADER.removeprefix("include/")] = function_sources(root / "kernels")[HEADER]
    sections = [f"## {name}\n\n```cpp\n{text.strip()}\n```\n" for name, text in texts.items()]
    return "# C++ headers\n\nThe library's public headers, of `runtime/include`.\n\n" + "\n".join(sections)
