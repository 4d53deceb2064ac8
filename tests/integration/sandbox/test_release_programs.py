"""Programs of a release see neither network, keys, files of the caller nor other processes, and need consent without a sandbox."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from aotforge.conformance.compilers import CompilationCache, find_compilers
from aotforge.errors import ExecutorError, ToolchainError
from aotforge.sandbox import memory_watch, release_programs, watch_process
from aotforge.sandbox.release_programs import (
    ProgramResult,
    ReleasePrograms,
    available_programs,
    check_device_images,
    check_emulated_images,
    find_release_programs,
)
from tests.e2e.checkouts import invoke
from tests.support.families import PROJECT
from tests.support.other_user import as_other_user

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def run(line: str, readable: tuple[Path, ...] = (), writable: tuple[Path, ...] = ()) -> ProgramResult:
    programs = find_release_programs("r", own=False, unsandboxed=False)
    return programs.run(
        ["/bin/sh", "-c", line], environment={}, readable=readable, writable=writable, seconds=300
    )


@needs_bubblewrap
def test_neither_keys_nor_files_of_the_caller_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTFORGE_KEY_TARGETS", "planted-key")
    (tmp_path / "key.pem").write_text("planted-file")
    (tmp_path / "work").mkdir()
    line = f"cat /proc/*/environ; cat {tmp_path}/key.pem /etc/shadow /root/.bashrc; ls /home /root /work; echo; id -u"
    done = run(line, readable=(tmp_path / "work",))
    assert "planted" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] in {"64042", "0"}
    assert done.stderr.count("No such file") >= 3


@needs_bubblewrap
def test_only_writable_folders_can_be_written(tmp_path: Path) -> None:
    readable, writable = tmp_path / "readable", tmp_path / "writable"
    readable.mkdir()
    writable.mkdir()
    line = f"echo 1 > {writable}/file; echo 1 > {readable}/file; echo 1 > /usr/planted; echo 1 > /dev/shm/x; true"
    assert run(line, (readable,), (writable,)).status == 0
    assert (writable / "file").read_text() == "1\n" and not (readable / "file").exists()
    assert not Path("/usr/planted").exists() and not Path("/dev/shm/x").exists()


@needs_bubblewrap
def test_nothing_but_its_writable_folders_and_tmp_can_be_written(tmp_path: Path) -> None:
    """Other folders would be memory that no limit counts."""
    (tmp_path / "readable").mkdir()
    (tmp_path / "writable").mkdir()
    line = "find / -type d ! -path '/proc/*' 2>/dev/null | while read -r d; do (: > $d/x) 2>/dev/null && echo $d; done"
    written = set(run(line, (tmp_path / "readable",), (tmp_path / "writable",)).stdout.split())
    # pytest's folders are below /tmp, which is bounded
    assert {one for one in written if not one.startswith("/tmp")} == set()
    assert {"/tmp", str(tmp_path / "writable")} <= written


_OPEN_FOR_WRITING = """
import os
for place, folders, names in os.walk("/proc"):
    folders[:] = [one for one in folders if place != "/proc" or not one.isdigit()]
    for name in names:
        path = os.path.join(place, name)
        if os.path.islink(path):
            continue
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        print(path)
print("all")
"""


@needs_bubblewrap
def test_no_file_of_the_kernel_opens_for_writing() -> None:
    """Where root calls, core_pattern would be a program that the kernel executes as root, outside of the sandbox. Nothing is written."""
    programs = find_release_programs("r", own=False, unsandboxed=False)
    command = ["/usr/bin/python3", "-c", _OPEN_FOR_WRITING]
    done = programs.run(command, environment={}, readable=(), seconds=300)
    assert (done.status, done.stdout.split()) == (0, ["all"]), done


_CHANGE_DEVICES = """
import os, stat
for name in ("null", "full", "random", "urandom"):
    with open("/dev/" + name, "r+b", buffering=0) as device:
        try:
            os.fchmod(device.fileno(), stat.S_IMODE(os.fstat(device.fileno()).st_mode))
        except OSError:
            continue
        print(name)
print(os.write(os.open("/dev/null", os.O_WRONLY), b"x"), len(open("/dev/urandom", "rb").read(8)))
"""


@needs_bubblewrap
@pytest.mark.parametrize("namespaces", ["_USER", "_ROOT"])
def test_devices_can_be_used_but_not_changed(namespaces: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are this machine's. The mode that the program sets is the one they have."""
    if os.geteuid() == 0:
        monkeypatch.setattr(release_programs, "_USER", getattr(release_programs, namespaces))
    release_programs._sandbox.cache_clear()
    programs = find_release_programs("r", own=False, unsandboxed=False)
    release_programs._sandbox.cache_clear()
    done = programs.run(["/usr/bin/python3", "-c", _CHANGE_DEVICES], environment={}, readable=(), seconds=300)
    assert (done.status, done.stdout) == (0, "1 8\n"), done


@needs_bubblewrap
def test_there_is_no_network_and_no_other_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        done = run(
            f'/usr/bin/python3 -c "{connect}" 2>&1; wc -l < /proc/net/dev; kill -9 {os.getpid()}; ls -d /proc/[0-9]* | wc -l'
        )
    assert "Function not implemented" in done.stdout
    assert int(done.stdout.splitlines()[-2]) <= 3  # two lines of headings, and perhaps the loopback device
    assert int(done.stdout.splitlines()[-1]) < 8 and "No such process" in done.stderr
    assert run("ls -A /proc/1; : > /proc/1/file").stdout == ""


@needs_bubblewrap
def test_processes_with_few_descriptors(tmp_path: Path) -> None:
    """A machine may have hundreds of processors, each with a process that reads images: three each, and numbers above 1023."""

    def used() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1040 if hard > 2000 else 1)]
    try:
        before = used()
        with ExitStack() as limits:
            process = available_programs().start(
                "verification worker", ["/bin/sleep", "600"], add={}, readable=[], limits=limits, stdout=-3, stderr=-3
            )  # fmt: skip
            for _ in range(3000):
                if "sleep\n" in names_below(process.pid) and used() - before <= 3:
                    break
                time.sleep(0.01)
            assert "sleep\n" in names_below(process.pid) and used() - before <= 3
            process.kill()
            process.wait()
        assert used() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)


def names_below(process: int) -> list[str]:
    names = []
    for one in watch_process._with_descendants(process, 1000)[0]:
        with suppress(OSError):
            names.append(Path(f"/proc/{one}/comm").read_text())
    return names


@needs_bubblewrap
def test_a_process_1_that_outlives_bubblewrap_is_ended(tmp_path: Path) -> None:
    """As one of which a program takes hold: bubblewrap leaves, and it continues."""
    words = [word for word in available_programs().sandbox if word != "--die-with-parent"]
    shutil.copy("/bin/sleep", tmp_path / "left-over")
    line = f"({tmp_path}/left-over 600 &); sleep 600 & echo begun"
    for seconds, status in ((60, 0), (1, None)):
        done = ReleasePrograms(sandbox=tuple(words)).run(
            ["/bin/sh", "-c", line if status == 0 else f"{line}; wait"],
            environment={}, readable=[tmp_path], seconds=seconds,
        )  # fmt: skip
        assert (done.status, done.stdout) == (status, "begun\n")
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert not [line for line in lines if bytes(tmp_path / "left-over") in line]


@needs_bubblewrap
def test_capabilities_and_time_are_bounded() -> None:
    text = run("grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status").stdout
    assert {line.split()[1].lstrip("0") for line in text.splitlines()} == {"", "1"}, text
    programs = find_release_programs("r", own=False, unsandboxed=False)
    ended = programs.run(["/bin/sleep", "30"], environment={}, readable=(), seconds=0.3)
    assert ended.status is None


@needs_bubblewrap
def test_no_program_has_a_class_of_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one it runs before the watch of its memory, where the caller may give one."""
    rows = run("grep -E 'priority' /proc/self/limits").stdout.splitlines()
    assert [row.split()[-2:] for row in rows] == [["0", "0"]] * 2
    assert run("exec python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))'").status
    # few machines let a test raise its own limits
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert {"--rtprio=0", "--nice=0"} <= {*release_programs._limited(["true"])}


def test_without_a_sandbox_a_strangers_release_needs_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_programs, "_sandbox", lambda: ())
    monkeypatch.setattr(os, "environ", {"PATH": os.defpath})
    with pytest.raises(ExecutorError, match="no sandbox") as error:
        find_release_programs("0.11.2b-r1", own=False, unsandboxed=False)
    assert "--unsandboxed" in error.value.hint
    assert find_release_programs("0.11.2b-r1", own=True, unsandboxed=False).sandbox == ()
    found = find_release_programs("0.11.2b-r1", own=False, unsandboxed=True)
    done = found.run(["/bin/sh", "-c", "echo $HOME $ONE"], environment={"ONE": "1"}, readable=(), seconds=300)
    assert (done.status, done.stdout) == (0, "/nonexistent 1\n")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "AOTFORGE_KEY_TARGETS",
            "AOTFORGE_CACHE_KEY_TARGETS",
            "AOTFORGE_SIGNING_KEY",
            "AWS_SECRET_ACCESS_KEY",
        ),
        *("GITHUB_PAT", "GPG_PASSPHRASE", "SMTP_PASS", "DB_PASSWD", "STORE_ACCESS_KEY", "DOCKER_AUTH_CONFIG"),
        *("npm_config__auth", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_without_a_sandbox_keys_must_be_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_programs, "_sandbox", lambda: ())
    monkeypatch.setenv(name, "secret")
    with pytest.raises(ExecutorError, match=name):
        find_release_programs("0.11.2b-r1", own=False, unsandboxed=True)
    confined, unconfined = ReleasePrograms(sandbox=("bwrap",)), ReleasePrograms(sandbox=())
    with pytest.raises(ExecutorError, match=name):
        check_emulated_images("0.11.2b-r1", own=False, programs=unconfined)
    check_emulated_images("0.11.2b-r1", own=True, programs=unconfined)
    check_emulated_images("0.11.2b-r1", own=False, programs=confined)


@needs_bubblewrap
@pytest.mark.compiler
@pytest.mark.parametrize("line", ['#include "{}"', 'asm(".incbin \\"{}\\"");'])
def test_a_header_cannot_read_a_file_of_the_caller(line: str, tmp_path: Path) -> None:
    """Compilers quote what they include in their messages, and put it into the program."""
    compilers, _ = find_compilers()
    if not compilers:
        pytest.skip("no C++ compiler of the matrix is installed")
    (tmp_path / "secret").write_text("planted secret\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "release.h").write_text(line.format(tmp_path / "secret") + "\nint main() {}\n")
    cache = CompilationCache(work=work, cache=work, programs=available_programs())
    done = cache.compile(compilers[-1], "#include <release.h>\n", includes=[work], inputs=[line])
    assert not done.ok and "planted" not in done.output and "secret" in done.output
    (work / "release.h").write_text("int main() {}\n")
    before = os.umask(0)
    try:
        done = cache.compile(compilers[-1], "#include <release.h>\n", includes=[work], inputs=["right"])
    finally:
        os.umask(before)
    assert done.ok and done.program
    assert (work / "check-2").stat().st_mode & 0o022 == 0  # the programs in it are executed


def test_a_compiler_that_does_not_end_or_start(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"sleep ran for more than 0\.2 s"):
        available_programs().compile(["sleep", "60"], readable=(), seconds=0.2)
    done = available_programs().compile(
        ["cat"], readable=(), seconds=300, text="on stdin\n", folder=Path("/usr")
    )
    assert (done.status, done.stdout) == (0, "on stdin\n")


@needs_bubblewrap
def test_memory_of_a_program_is_bounded() -> None:
    """The kernel would choose among all processes of the machine when it ends."""
    programs = find_release_programs("r", own=False, unsandboxed=False)
    for size, ends in (("1 << 30", 0), ("5 << 30", 1)):
        command = ["/usr/bin/python3", "-c", f"print(len(bytearray({size})))"]
        done = programs.run(command, environment={}, readable=(), seconds=300)
        assert done.status == ends, done.stderr
    assert "MemoryError" in done.stderr


_MANY = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        part = bytearray(100 << 20)
        for at in range(0, len(part), 4096):
            part[at] = 1
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""


def copy_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To where another user may execute it."""
    shutil.copy(watch_process.__file__, folder / "watch.py")
    command = ("/usr/bin/python3", "-I", "-S", str(folder / "watch.py"))
    monkeypatch.setattr(memory_watch, "_COMMAND", command)


@needs_bubblewrap
@pytest.mark.parametrize("hidden", [False, True])
def test_memory_of_all_processes_is_bounded_without_control_groups(
    hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six processes with 100 MiB each, where 400 are permitted."""
    monkeypatch.setattr(release_programs, "_MEMORY", 400 << 20)
    text = _MANY
    if hidden:  # from those who would read what the process shares
        text = f"import ctypes\nctypes.CDLL(None).prctl(4, 0)\n{text}"
    run("true")  # loads what another user may not

    def prepare(folder: Path) -> None:
        copy_watch(folder, monkeypatch)

    def check(folder: Path) -> None:
        release_programs._sandbox.cache_clear()
        if not available_programs().sandbox:
            return
        programs = find_release_programs("r", own=False, unsandboxed=False)
        done = programs.run(["/usr/bin/python3", "-c", text], environment={}, readable=(), seconds=50)
        assert done.status not in (0, None), done

    as_other_user(check, prepare=prepare)
    release_programs._sandbox.cache_clear()


@needs_bubblewrap
def test_calls_that_make_hidden_memory_or_change_processes_are_refused() -> None:
    calls = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    for call in (
        "memfd_create(b'x', 0)",
        "shmget(0, 4096, 0o1600)",
        "semget(0, 1, 0o1600)",
        "msgget(0, 0o1600)",
        "syscall(240, b'x', 0o102, 0o600, 0)",
        "syscall(248, b'user', b'x', b'x', 1, -2)",
        "syscall(249, b'user', b'x', 0, 0)",
        "syscall(250, 0, -3, 0)",
        "splice(0, 0, 1, 0, 1, 0)",
        "tee(0, 1, 1, 0)",
        "vmsplice(1, 0, 0, 0)",
        "syscall(447, 0)",
        "syscall(0x40000000 + 319, b'x', 0)",
        "socketpair(1, 1, 0, (ctypes.c_int * 2)())",
        "unshare(0x10000000)",
        "syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",  # clone, with a user namespace
        "syscall(435, 0, 0)",
        "mmap(None, 4096, 3, 0x21, -1, 0)",
        "syscall(56, 0x100 | 17, 0, 0, 0, 0)",  # clone, with the same memory
        "ptrace(0x4206, 1, 0, 0)",  # PTRACE_SEIZE of process 1, which could then continue after the sandbox's end
        "syscall(310, 1, 0, 0, 0, 0, 0)",
        "syscall(311, 1, 0, 0, 0, 0, 0)",
        "syscall(438, 0, 0, 0)",
        "syscall(206, 1, ctypes.byref(ctypes.c_long(0)))",  # io_setup: the machine has a number of them
        "fcntl(libc.open(b'/usr/bin/factor', 0), 1024, 1)",  # a lease, on a program that is root's as this user is
    ):
        calls += f"print(libc.{call}, ctypes.get_errno() == errno.ENOSYS)\n"
    programs = find_release_programs("r", own=False, unsandboxed=False)
    done = programs.run(["/usr/bin/python3", "-c", calls], environment={}, readable=(), seconds=300)
    assert done.stdout.split() == ["-1", "True"] * 25, done
    opened = programs.run(["/bin/sh", "-c", "exec < /dev/zero"], environment={}, readable=(), seconds=300)
    assert opened.status != 0  # what is mapped of it is shared memory


@needs_bubblewrap
def test_space_beyond_the_end_of_a_file_is_not_reserved() -> None:
    """File systems compare the limit on a file's size only where it grows: an output could fill the disk. Nor can a program make its
    output unreadable, or the parent wait for it."""
    text = (
        "import ctypes, errno, fcntl, os, struct, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.fallocate(1, 0, ctypes.c_long(0), ctypes.c_long(1 << 20)), flush=True)\n"
        "for mode in (1, 8, 0x10, 0x20, 0x40, 0x11):\n"
        "    print(libc.fallocate(1, mode, ctypes.c_long(0), ctypes.c_long(1 << 20)), ctypes.get_errno() == errno.ENOSYS, flush=True)\n"
        "for number in (0x40305828, 0x4030582A, 0x40305839):\n"
        "    space = ctypes.create_string_buffer(struct.pack('=hhiqqiI16x', 0, 0, 0, 0, 1 << 30, 0, 0))\n"
        "    print(libc.ioctl(1, ctypes.c_ulong(number), space), ctypes.get_errno() == errno.ENOSYS, flush=True)\n"
        "print(os.fstat(1).st_blocks * 512 <= 1 << 21, flush=True)\n"
        "os.fchmod(1, 0)\ntry:\n    fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nexcept OSError:\n    pass\n"
        "fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\n"
    )
    programs = find_release_programs("r", own=False, unsandboxed=False)
    done = programs.run(["/usr/bin/python3", "-c", text], environment={}, readable=(), seconds=300)
    assert done.stdout.strip("\0").split() == ["0", *["-1", "True"] * 9, "True"], done


@needs_bubblewrap
def test_other_shared_and_private_memory_is_permitted() -> None:
    text = (
        "import mmap, os, subprocess, tempfile, threading\n"
        "file = tempfile.TemporaryFile()\nfile.truncate(1 << 20)\n"
        "mmap.mmap(file.fileno(), 1 << 20)[5] = 1\nmmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE)[5] = 1\n"
        "thread = threading.Thread(target=print, args=('thread',))\nthread.start()\nthread.join()\n"
        "print(subprocess.run(['/bin/echo', 'child'], stdin=subprocess.DEVNULL, capture_output=True).stdout, os.fork() >= 0)\n"
    )
    programs = find_release_programs("r", own=False, unsandboxed=False)
    done = programs.run(["/usr/bin/python3", "-c", text], environment={}, readable=(), seconds=300)
    assert done.status == 0 and "thread" in done.stdout and "child" in done.stdout, done


@needs_bubblewrap
def test_processes_of_a_program_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_programs, "_PROCESSES", 20)
    forks = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(2)\n        os._exit(0)\nprint('all')"
    run("true")  # loads what another user may not

    def prepare(folder: Path) -> None:
        copy_watch(folder, monkeypatch)

    def check(folder: Path) -> None:
        release_programs._sandbox.cache_clear()
        if not available_programs().sandbox:
            return
        programs = find_release_programs("r", own=False, unsandboxed=False)
        done = programs.run(["/usr/bin/python3", "-c", forks], environment={}, readable=(), seconds=300)
        # the kernel refuses a fork, or the watch ends all: the kernel's limit counts what the user's other programs ended meanwhile
        assert "BlockingIOError" in done.stderr or done.status == -signal.SIGKILL, done
        assert done.status and "all" not in done.stdout

    as_other_user(check, prepare=prepare)
    release_programs._sandbox.cache_clear()


def test_a_limit_of_the_caller_is_not_exceeded() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        os._exit(0 if "--fsize=1000" in release_programs._limited(["x"]) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == (soft, hard)


def test_images_of_others_reach_a_gpu_with_consent_and_without_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They have no sandbox, and the key that signs the report is in the same process."""
    check_device_images("r", own=True, unsandboxed=False)
    check_device_images("r", own=False, unsandboxed=True)
    with pytest.raises(ExecutorError, match="the images of r are not executed: they are code of others"):
        check_device_images("r", own=False, unsandboxed=False)
    done = invoke(PROJECT, "hardware.check", "--release", str(tmp_path), check=False)
    assert done.returncode == 29 and "are code of others" in done.stderr
    monkeypatch.setenv("AOTFORGE_SIGNING_KEY", "x")
    with pytest.raises(ExecutorError, match="it could read AOTFORGE_SIGNING_KEY"):
        check_device_images("r", own=False, unsandboxed=True)


def test_messages_of_compilers_are_kept_in_part() -> None:
    """300 kB of a header made 7 MB of them, up to 256 MB, for each of dozens of compilations."""
    command = ["/bin/sh", "-c", "yes | head -c 3000000; yes | head -c 3000000 >&2"]
    programs = available_programs()
    done = programs.compile(command, readable=(), seconds=300)
    assert (done.status, len(done.stdout), len(done.stderr)) == (0, 1 << 20, 1 << 20)
    done = programs.compile(command, readable=(), seconds=300, output_limit=release_programs.FILE_LIMIT)
    assert (len(done.stdout), len(done.stderr)) == (3_000_000, 3_000_000)
