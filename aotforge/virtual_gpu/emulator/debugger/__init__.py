"""Breakpoints, stepping and dumps for kernels on the virtual GPU; see docs/virtual-gpu-tools.md.

`source` reads line tables, `places` says which instructions a text means, `views` shows registers and memory, `session` runs a
launch with stops, `shell` is the prompt.
"""
