"""Places of releases by address."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import InstallError
from aotforge.publish.session import open_index


def test_the_folder_of_a_release_is_not_a_place_of_releases(tmp_path: Path) -> None:
    release = tmp_path / "0.11.2b-r1"
    release.mkdir()
    (release / "MANIFEST.json").write_text("{}")
    for address in (str(release), release.as_uri()):
        with pytest.raises(InstallError, match=r"the folder of one release, not a place") as caught:
            open_index(address, root=None, checkout=tmp_path, environment={}, cache=tmp_path)
        assert f"./dev dropin --release {release} --pytorch-lib" in caught.value.hint
        assert f"./dev release.publish --folder {release} --to" in caught.value.hint
