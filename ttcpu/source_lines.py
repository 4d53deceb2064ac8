"""LLVM's debug information of source lines: which line of a kernel an instruction is from."""

from __future__ import annotations

from pathlib import PurePath


class SourceLines:
    """Metadata of one module, numbered from 0; equal nodes are one."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._unit = ""

    def function(self, name: str, line: str) -> str:
        """A function that begins at `line` ("file:line"); "" where no file is known."""
        file, _, number = line.rpartition(":")
        if not file:
            return ""
        where = self._file(file)
        self._unit = self._unit or self._node(
            f'distinct !DICompileUnit(language: DW_LANG_C, file: {where}, producer: "aotforge", isOptimized: '
            f"true, emissionKind: LineTablesOnly)"
        )
        type_ = self._node("!DISubroutineType(types: !{})")
        return self._node(
            f'distinct !DISubprogram(name: "{_escaped(name)}", file: {where}, line: {number}, type: {type_}, '
            f"scopeLine: {number}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: {self._unit})"
        )

    def location(self, function: str, line: str) -> str:
        """A line ("file:line") within a function, which may be of another file: that of an inlined one."""
        file, _, number = line.rpartition(":")
        scope = self._node(
            f"!DILexicalBlockFile(scope: {function}, file: {self._file(file)}, discriminator: 0)"
        )
        return self._node(f"!DILocation(line: {number}, scope: {scope})")

    def _file(self, path: str) -> str:
        file = PurePath(path)
        return self._node(
            f'!DIFile(filename: "{_escaped(file.name)}", directory: "{_escaped(str(file.parent))}")'
        )

    def _node(self, text: str) -> str:
        return self._nodes.setdefault(text, f"!{len(self._nodes)}")

    def __str__(self) -> str:
        if not self._unit:
            return ""
        lines = [f"{name} = {text}" for text, name in self._nodes.items()]
        version, dwarf = (
            f'!{{i32 {kind}, !"{name}", i32 {number}}}'
            for kind, name, number in ((2, "Debug Info Version", 3), (7, "Dwarf Version", 4))
        )
        end = len(lines)
        return "\n".join(
            [*lines, f"!{end} = {version}", f"!{end + 1} = {dwarf}",
                f"!llvm.module.flags = !{{!{end}, !{end + 1}}}",
             f"!llvm.dbg.cu = !{{{self._unit}}}", ""]
        )  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in text.encode())
