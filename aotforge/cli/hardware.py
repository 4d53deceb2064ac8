"""Tasks for owners of a GPU: check a release on it, import a report."""

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Output, print_status
from aotforge.cli.publish import Trust, checked_index
from aotforge.cli.settings import ROOT
from aotforge.cli.values import Cache, OnlyNames, absolute, cache_folder, names, one_arch, pairs
from aotforge.errors import UsageError

if TYPE_CHECKING:
    from aotforge.base.progress import Progress
    from aotforge.verify.device.messages import DeviceResult


@command("hardware.check")
def check(
    console: Output,
    release: Annotated[str | None, "a release folder (default: the newest in releases/dist)"] = None,
    from_: Annotated[str | None, "check a published release: s3://..., URL or folder"] = None,
    version: Annotated[str | None, "with --from: a release or an API level (default: the newest)"] = None,
    root: Trust = None,
    arch: Annotated[str | None, "arch of the GPU (default: that of the first one with images)"] = None,
    gpu: Annotated[int | None, "number of the GPU, as its driver counts"] = None,
    hip: Annotated[str | None, "path of libamdhip64.so (default: the installed one, else PyTorch's)"] = None,
    only: OnlyNames = None,
    compare: Annotated[bool, "compare bits with the virtual GPU's, which takes longest"] = True,
    repeat: Annotated[int, "launches of the timed call, of which the median counts; 0: no times"] = 20,
    shape: Annotated[str, "the timed call: seqlen_q=1024,seqlen_k=1024,heads_q=16,..."] = "",
    torch: Annotated[str | None, "Python whose PyTorch is timed (default: the environment's)"] = None,
    seconds: Annotated[float, "of one launch, after which the image counts as hanging"] = 60.0,
    output: Annotated[str | None, "folder for the report (default: the current one)"] = None,
    key: Annotated[str | None, "key to sign the report, PEM (default: AOTFORGE_SIGNING_KEY)"] = None,
    cache: Cache = None,
) -> Report:
    """Execute every image of a release on a GPU of this machine, compare, time, and write a report.

    ./dev hardware.check --arch gfx908 --only add
    ./dev hardware.check --from https://example.org/aotriton --root root.json
    """
    from tempfile import TemporaryDirectory

    from aotforge.base.architectures import load_architectures
    from aotforge.conformance.candidate import newest_release
    from aotforge.deliver.hardware import check as tool
    from aotforge.deliver.hardware.device import SHAPE, choose_device
    from aotforge.deliver.hardware.report import write_report
    from aotforge.deliver.install.install_release import fetch_pack, install_errors
    from aotforge.plan.selection import Only
    from aotforge.release.signing import KEY_VARIABLE, load_private_key
    from aotforge.verify.device.watchdog import Limits

    if repeat < 0 or not seconds > 0:
        raise UsageError("--repeat is at least 0, --seconds more than 0", hint="--repeat 20 --seconds 60")
    # a key that cannot be used is better known before an hour of work
    signing = load_private_key(absolute(key), os.environ) if key or os.environ.get(KEY_VARIABLE) else None
    request = tool.CheckRequest(
        root=ROOT,
        cache=cache_folder(cache),
        date=datetime.now(UTC).date().isoformat(),
        library=hip,
        only=Only(names(only)),
        not_compared="" if compare else "not requested",
        shape={**SHAPE, **{name: _size(name, size) for name, size in pairs(shape).items()}},
        repeat=repeat,
        torch=absolute(torch),
        limits=Limits(launch=seconds),
    )
    wanted = one_arch(arch) if arch else None
    dist, local = ROOT / "releases" / "dist", None
    if not from_:
        local = Path(release).absolute() if release else newest_release(dist / "finished", dist)
    device = choose_device(ROOT, arch=wanted, number=gpu, library=hip)
    with TemporaryDirectory(prefix="aotforge-hardware-") as scratch, console.progress_of() as line:
        if local is None:
            with install_errors(), console.bytes() as on_progress:
                reader, trusted = checked_index(from_, root, cache, console)
                local, notes = fetch_pack(
                    reader,
                    trusted.index,
                    version=version,
                    arch=device.arch,
                    pack=load_architectures(ROOT / "manifests").architectures[device.arch].pack,
                    downloads=request.cache / "downloads",
                    folder=Path(scratch),
                    on_progress=on_progress,
                )
            for note in notes if not console.silent else ():
                print_status(f"note: {note}")
        on_stage, on_result = (
            line.stage if console.events else line.note,
            partial(_result, line, console.events),
        )
        report = tool.check_release(request, local, device, on_stage=on_stage, on_result=on_result)
    return write_report(report, Path(output or ".").absolute(), key=signing)


def _result(line: "Progress", events: bool, result: "DeviceResult", done: int, total: int) -> None:
    """A line for every image, the last of which names an image that hangs; or events."""
    if not events:
        line.note(f"{done}/{total} {result.outcome:8} {result.label}")
        return
    line.begin("executing")
    if result.outcome != "passed":
        line.job(result.outcome, result.label)
    line.update(done, total)


def _size(name: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UsageError(f"--shape {name}={text} is not a valid size", hint="--shape seqlen_q=1024")
    return int(text)


@command("hardware.import")
def import_(
    report: Annotated[str, "the JSON file of ./dev hardware.check"],
    key: Annotated[str | None, "key to sign the report, PEM (default: AOTFORGE_SIGNING_KEY)"] = None,
    unsigned: Annotated[bool, "take it without checking a signature"] = False,
) -> Report:
    """Check a hardware report and keep it in manifests/hardware/, which the matrix shows."""
    from aotforge.deliver.hardware.import_report import import_report
    from aotforge.release.signing import load_public_key

    if bool(key) == unsigned:
        raise UsageError(
            "one of --key PUBLIC_KEY and --unsigned is needed",
            cause="a report is taken from the one who signed it, or without knowing from whom",
            hint="./dev hardware.import REPORT --key owner.pub",
        )
    public = load_public_key(Path(key).absolute()) if key else None
    return import_report(Path(report).absolute(), ROOT / "manifests", key=public)
