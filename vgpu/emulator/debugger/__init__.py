"""Breakpoints, stepping and dumps for kernels on the virtual GPU; see docs/virtual-gpu-tools.md.

`locations` resolves breakpoints, `views` formats registers and memory, `session` runs a launch with stops,
`shell` is the prompt.
"""
