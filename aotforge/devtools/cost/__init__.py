"""What an image costs without hardware: executed on the virtual GPU, counted, and put into a documented model of each chip.

`chips` is the data table, `matrix` and `rates` say what an instruction keeps busy, `work` adds up a measured launch, `model` estimates
cycles (pure), `images` finds or compiles what is asked about and runs it, `report` shows it. See docs/virtual-gpu-tools.md.
"""
