"""A virtual HIP: `libamdhip64.so` whose launches run on the emulator.

    virtual = build_virtual_hip(cache)  # the C++ part, compiled once
    environment(virtual, ...)           # variables for a program that runs with it

The C++ part (`native/`) is HIP to a program. When a module is loaded it runs `prepare` (Python: text by
digest, proof, binding), opens the program file (`blob`) and the compiled interpreter, and executes launches
in the program's process and memory. See docs/virtual-gpu-tools.md.
"""
