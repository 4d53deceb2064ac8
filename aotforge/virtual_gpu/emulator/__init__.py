"""A virtual AMD GPU: code objects executed instruction by instruction on the CPU.

    program = Emulator("gfx908").load(hsaco, asm)
    report = program.launch(grid, arguments, Memory({"x": x, ...}), lds_bytes=...)

`isa` is the instruction table, `native` the hand-written part of the interpreter that is generated from it. Data flows
text -> `listing` -> `proof` (it is the image) -> `binding` (against the table) -> `program`.
"""
