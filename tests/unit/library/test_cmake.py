"""CMake commands as words."""

from __future__ import annotations

from aotforge.library.cmake_build import cmake_commands


def test_settings_are_sorted_and_installing_is_optional() -> None:
    configure, build = cmake_commands(
        cmake="cmake", source="s", objects="o", settings={"B": "2", "A": "1"}, jobs=3, install=None
    )
    assert configure == ["cmake", "-S", "s", "-B", "o", "-G", "Ninja", "-DA=1", "-DB=2"]
    assert build == ["cmake", "--build", "o", "--parallel", "3"]
    install = cmake_commands(cmake="cmake", source="s", objects="o", settings={}, jobs=None, install="p")[2]
    assert install == ["cmake", "--install", "o", "--prefix", "p"]
