"""The cost of a launch that somebody else makes: what `python -m aotforge.devtools.emulator_cli run --cost` prints."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.compile.code_object_check import read_stats
from aotforge.compile.resources import resources
from aotforge.devtools.cost.arch_rates import model_of
from aotforge.devtools.cost.cost_report import lines
from aotforge.devtools.cost.hot import hot_lines
from aotforge.devtools.cost.model import estimate
from aotforge.devtools.cost.run_cost import Cost
from aotforge.devtools.cost.work import add_up
from aotforge.formats.code_object import kernel_metadata
from aotforge.virtual_gpu.emulator.measure import Meter
from aotforge.virtual_gpu.emulator.program import Program

_TOP = 10
_MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"


class ProgramCost:
    """Give `meter` to the launch, then ask for `lines`. Raises UnsupportedError for a chip without figures."""

    def __init__(self, program: Program, hsaco: bytes) -> None:
        self._program, self._hsaco = program, hsaco
        self._model = model_of(program.target.arch)
        self.meter = Meter(self._model.banks)

    def lines(self, grid: tuple[int, int, int], lds_bytes: int) -> list[str]:
        """The report of the launch that has been made. Raises UnsupportedError, ManifestError."""
        program, arch = self._program, self._program.target.arch
        assert self.meter.result is not None
        waves = -(-program.threads // program.target.lanes)
        chip = load_architectures(_MANIFESTS).architectures[arch]
        figures = read_stats(kernel_metadata(self._hsaco), {"shared": lds_bytes, "num_warps": waves})
        found = resources(figures, chip)
        work = add_up(
            self.meter.result,
            workgroups=grid[0] * grid[1] * grid[2],
            waves=waves,
            wavefront=program.target.lanes,
        )
        made = Cost(
            name=program.listing.kernel,
            digest=hashlib.sha256(self._hsaco).hexdigest(),
            arch=arch,
            chip=self._model.name,
            case="as launched",
            grid=grid,
            resources=found,
            work=work,
            estimate=estimate(
                work, self._model, arch=arch, occupancy=found.occupancy, simds=chip.simds_per_cu
            ),
            hot=hot_lines(self.meter.result, self._model, arch=arch, simds=chip.simds_per_cu, count=_TOP),
        )
        return lines([made])
