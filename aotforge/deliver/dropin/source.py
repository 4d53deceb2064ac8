"""The release that is put in: an unpacked prefix, as its tarballs make it."""

from __future__ import annotations

from pathlib import Path

from aotforge.deliver.dropin.model import IMAGES, PLAIN_NAME, Source
from aotforge.errors import DropInError, ReleaseError
from aotforge.release.platform_tag import read_soname


def read_source(prefix: Path, *, release: str) -> Source:
    """The release in `prefix`. Raises DropInError when it has no library, or image packs that are not whole."""
    library = prefix / "lib" / PLAIN_NAME
    if not library.exists():
        raise DropInError(
            f"{prefix} has no lib/{PLAIN_NAME}",
            cause="it is not an unpacked release",
            hint="`invoke install --prefix DIR` makes one",
        )
    real = library.resolve()
    try:
        soname = read_soname(real)
    except ReleaseError as error:
        raise DropInError(error.what) from error
    if real.name != soname:
        raise DropInError(f"{real} has SONAME {soname}", cause="the library was renamed")
    names = sorted(path.name for path in (prefix / "lib").glob(f"{PLAIN_NAME}*") if path.resolve() == real)
    packs = sorted(path.name for path in (prefix / "lib" / IMAGES).glob("*") if path.is_dir())
    lacking = [name for name in packs if not (prefix / "lib" / IMAGES / name / "__signature__").is_file()]
    if lacking or not packs:
        raise DropInError(
            f"{prefix}/lib/{IMAGES} has no whole image pack" + (f": {', '.join(lacking)}" if lacking else ""),
            cause="the image tarballs of the release were not unpacked, or not to their end",
            hint="`invoke install --prefix DIR --arch ARCH` unpacks library and images together",
        )
    return Source(release=release, prefix=prefix, soname=soname, names=tuple(names), packs=tuple(packs))
