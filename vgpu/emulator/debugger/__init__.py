"""Breakpoints, stepping and dumps for kernels on the virtual GPU; see docs/virtual-gpu-tools.md.

Input: a loaded program and a launch request. Output: stops of its waves, with registers and memory as text.
`source` reads line tables, `locations` resolves breakpoints, `views` formats registers and memory, `session`
runs a launch with stops, `shell` is the prompt.
"""
