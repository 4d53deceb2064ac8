"""A virtual HIP: `libamdhip64.so` whose launches run on the emulator, in the program's process.

The C++ part (`native/`) runs `prepare` when a module is loaded, and opens the program file (`blob`) and the
compiled interpreter.
"""
