"""Virtual GPUs: code objects executed on the CPU.

Input: a code object and its assembly text. Output: the memory after the launch, and faults. `vgpu.api.run`
makes one launch.
"""
