"""A virtual HIP: `libamdhip64.so` whose launches run on the emulator.

    library = build_library(cache)      # the C++ part, compiled once
    environment(library, ...)           # what a program needs to run with it

The C++ part (`native/`) is HIP to a program. When a module is loaded it runs `prepare` (Python: text by digest, proof, binding), gets a program file
(`blob`) and the compiled interpreter, and executes launches in the program's own process and memory. See docs/virtual-hip.md.
"""
