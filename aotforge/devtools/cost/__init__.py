"""Cost of an image without hardware: executed on the virtual GPU, counted, estimated by a model.

`rates` has the tables of archs and instructions, `work` sums up a measured launch, `model` estimates cycles
(pure), `candidates` finds or compiles the images, `run_cost` measures them, `cost_report` shows them. See
docs/virtual-gpu-tools.md.
"""
