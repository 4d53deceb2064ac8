"""A virtual AMD GPU: code objects executed instruction by instruction on the CPU.

    program = Emulator("gfx908").load(hsaco, asm)
    report = program.launch(LaunchRequest(grid=grid, arguments=arguments, memory=Memory({"x": x})))

`isa` is the instruction table, `native` the hand-written part of the interpreter that is generated from it.
Data flows text -> `listing` -> `assembly` (it is the image's) -> `binding` (against the table) -> `program`.
"""
