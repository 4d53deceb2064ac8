"""The command of vgpu with estimates of cycles (`--cost`)."""

import sys

from aotforge.devtools.cost.cost_report import LaunchCost
from vgpu.cli import main

if __name__ == "__main__":
    sys.exit(main(program="python -m aotforge.devtools.cost", costs=LaunchCost))
