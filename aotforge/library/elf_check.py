"""What a built library must hold, read from its ELF structure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from aotforge.errors import RuntimeBuildError

_ALLOWED_NEEDS = re.compile(r"^(libc|libm|libdl|libpthread|ld-linux-x86-64|libgcc_s)\.so\.\d+$")


def check_library(path: Path, soname: str) -> str:
    """The newest glibc symbol version that the library needs, e.g. "2.35".

    Raises RuntimeBuildError for another SONAME, an RPATH, a needed library beyond glibc, an executable stack or a
    writable relocation table.
    """
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            tags = _dynamic(elf)
            complaints = _complaints(elf, tags, soname)
            versions = _versions(elf)
    except (OSError, ELFError) as error:
        raise RuntimeBuildError(f"{path} is not a library: {error}") from error
    if complaints:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(complaints)}",
            cause="a compiler or linker that does not follow runtime/CMakeLists.txt",
            hint="build with GCC or clang and GNU ld",
        )
    return max(versions, key=lambda text: tuple(int(part) for part in text.split(".")))


def _dynamic(elf: Any) -> dict[str, list[Any]]:
    tags: dict[str, list[Any]] = {}
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return tags
    for tag in section.iter_tags():
        value = getattr(tag, "soname", None) or getattr(tag, "needed", None) or tag.entry.d_val
        tags.setdefault(tag.entry.d_tag, []).append(value)
    return tags


def _complaints(elf: Any, tags: dict[str, list[Any]], soname: str) -> list[str]:
    found = []
    if tags.get("DT_SONAME") != [soname]:
        found.append(f"SONAME is {tags.get('DT_SONAME')}, not {soname}")
    if "DT_RPATH" in tags or "DT_RUNPATH" in tags:
        found.append("it has an RPATH")
    if "DT_TEXTREL" in tags:
        found.append("it has text relocations")
    strangers = [name for name in tags.get("DT_NEEDED", []) if not _ALLOWED_NEEDS.match(name)]
    if strangers:
        found.append(f"it needs {', '.join(strangers)}")
    kinds = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
    if kinds.get("PT_GNU_STACK", 1) & 1:
        found.append("its stack is executable")
    if "PT_GNU_RELRO" not in kinds:
        found.append("its relocations stay writable")
    return found


def _versions(elf: Any) -> list[str]:
    section = elf.get_section_by_name(".gnu.version_r")
    found = ["2.0"]
    if isinstance(section, GNUVerNeedSection):
        for _, entries in section.iter_versions():
            found += [
                entry.name.removeprefix("GLIBC_") for entry in entries if entry.name.startswith("GLIBC_2")
            ]
    return found
