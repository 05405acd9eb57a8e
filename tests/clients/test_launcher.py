# SPDX-License-Identifier: Apache-2.0
"""The launcher as a process: what passes through it, what it leaves, what it says at failure."""

import contextlib
import ctypes
import json
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace

from .conftest import TIME_LIMIT_S, Emulator, needs, processes_with, wait_until

PASSED_ON = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]

STATIC = Path("/sbin/ldconfig")


@pytest.fixture
def command_words() -> list[str]:
    import sysconfig  # noqa: PLC0415

    return [str(Path(sysconfig.get_path("scripts")) / "headrace"), "emulate"]


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_passes_through(anybody: Emulator, code: int) -> None:
    assert anybody.run("--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT])
def test_the_signal_that_ended_the_command_passes_through(
    anybody: Emulator, number: signal.Signals
) -> None:
    assert anybody.run("--", "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_children_that_the_launcher_inherited_are_left_alone(
    anybody: Emulator, marker: str
) -> None:
    script = f'sleep {marker} & exec "$@"'
    result = subprocess.run(
        [*anybody.prefix, "sh", "-c", script, "sh", anybody.program, "--", "true"],
        cwd="/tmp",
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 0
    assert len(processes_with(marker)) == 1


def test_input_output_and_descriptors_are_untouched(anybody: Emulator) -> None:
    data = os.urandom(1 << 20)
    result = anybody.run("--", "sh", "-c", "cat; echo said >&2", stdin=data)
    assert result.stdout == data
    assert result.stderr == b"said\n"
    reader, writer = os.pipe()
    script = f"import os; os.write({writer}, b'here\\n')"
    anybody.run("--", "/usr/bin/python3", "-c", script, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"here\n"


def test_standard_files_that_are_closed_stay_closed(
    anybody: Emulator, command_words: list[str]
) -> None:
    script = (
        "import os\n"
        "def is_open(number):\n"
        "    try: os.fstat(number)\n"
        "    except OSError: return False\n"
        "    return True\n"
        "os._exit(1 if any(map(is_open, {closed})) else 5 if os.listdir('/dev/dsa') else 2)"
    )
    fronts = [anybody.words()] if anybody.prefix else [anybody.words(), command_words]
    for front in fronts:
        for redirections, closed in (
            (">&-", [1]),
            ("<&- >&-", [0, 1]),
            ("<&- >&- 2>&-", [0, 1, 2]),
        ):
            command = ["/usr/bin/python3", "-c", script.format(closed=closed)]
            result = subprocess.run(
                ["sh", "-c", f'exec "$@" {redirections}', "sh", *front, "--", *command],
                cwd="/tmp",
                check=False,
                timeout=TIME_LIMIT_S,
            )
            assert result.returncode == 5, (front, redirections)


def test_a_command_line_may_be_as_long_as_without_the_emulator(emulator: Emulator) -> None:
    def attempt(byte_count: int) -> subprocess.CompletedProcess[bytes] | None:
        whole, rest = divmod(byte_count, 100_000)
        words = ["x" * 100_000] * whole + ["x" * rest]
        try:
            return emulator.run("--", "true", *words, env={"PATH": os.environ["PATH"]})
        except OSError:
            return None  # Too long for the launcher, too.

    fits, too_long = 0, 8 << 20
    while too_long - fits > 4096:
        middle = (fits + too_long) // 2
        fits, too_long = (fits, middle) if attempt(middle) is None else (middle, too_long)
    result = attempt(fits)
    assert result is not None
    assert (result.returncode, result.stderr) == (0, b"")


def test_the_command_is_who_and_where_the_caller_is(anybody: Emulator, shared_path: Path) -> None:
    script = "id -u; id -g; pwd; umask; ulimit -n; grep -E 'Sig(Blk|Ign)' /proc/self/status"
    inside = anybody.run("--", "sh", "-c", script, cwd=shared_path, umask=0o27)
    outside = subprocess.run(
        [*anybody.prefix, "sh", "-c", script],
        cwd=shared_path,
        umask=0o27,
        capture_output=True,
        check=True,
        timeout=TIME_LIMIT_S,
    )
    assert inside.stdout == outside.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root keeps its supplementary groups' names")
def test_supplementary_groups_stay(emulator: Emulator) -> None:
    groups = Emulator(emulator.program, ("setpriv", "--groups=7,65534"))
    assert groups.run("--", "id", "-G").stdout.split() == [b"0", b"7", b"65534"]


def test_the_environment_is_the_callers(anybody: Emulator) -> None:
    for given in (anybody.environment, {"LD_PRELOAD": "libm.so.6", "A": "x" * (1 << 20)}):
        words = [] if given is anybody.environment else ["env", "-i"]
        if words:
            words += [f"{name}={value}" for name, value in given.items() if name != "A"]
        inside = anybody.run("--", *words, "env", "-u", "_")
        outside = subprocess.run(
            [*anybody.prefix, *words, "env", "-u", "_"],
            capture_output=True,
            check=True,
            env=os.environ | anybody.environment,
            timeout=TIME_LIMIT_S,
        )
        assert inside.stdout == outside.stdout


def test_the_machine_is_otherwise_the_same(anybody: Emulator) -> None:
    script = (
        "ls /dev /sys/bus /sys/module /sys/devices /sys/bus/pci | grep -v -e d.a -e idxd -e char"
    )
    inside = anybody.run("--", "sh", "-c", script).stdout
    outside = subprocess.run(
        ["sh", "-c", script], capture_output=True, check=True, timeout=TIME_LIMIT_S
    ).stdout
    assert inside == outside
    result = anybody.shell("echo x >/dev/null; head -c 4 /dev/urandom | wc -c; test -e /dev/pts")
    assert result.stdout.strip() == b"4"


def test_an_emulation_may_run_inside_an_emulation(emulator: Emulator) -> None:
    inner = (
        f"{emulator.program} --engines 1 -- sh -c 'ls /sys/bus/dsa/devices; cat /etc/ld.so.preload'"
    )
    result = emulator.shell(f"{inner}; ls -d /sys/bus/dsa/devices/dsa*", "--devices", "2")
    lines = result.stdout.decode().split()
    assert lines.count("dsa0") == 1
    assert "dsa1" not in lines
    assert lines.count("/dev/dsa-emulator/libheadrace-dsa-trap.so") == 1
    assert lines[-2:] == ["/sys/bus/dsa/devices/dsa0", "/sys/bus/dsa/devices/dsa1"]


def test_when_the_outer_of_two_launchers_is_killed_nothing_is_left(
    anybody: Emulator, marker: str
) -> None:
    script = f"sleep {marker} & setsid sleep {marker} & echo ready; exec sleep {marker}"
    inner = anybody.words("--", "sh", "-c", script)[len(anybody.prefix) :]
    process = anybody.start("--", *inner)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait(TIME_LIMIT_S)
    wait_until(lambda: not processes_with(marker))
    wait_until(lambda: not processes_with(str(anybody.program)))


@pytest.mark.parametrize("number", PASSED_ON)
def test_signals_reach_the_command(anybody: Emulator, number: signal.Signals) -> None:
    script = f"trap 'exit 42' {number.name[3:]}; echo ready; while :; do sleep 0.01; done"
    process = anybody.start("--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.wait(TIME_LIMIT_S) == 42


def test_a_command_without_a_handler_is_ended_by_the_signal(anybody: Emulator) -> None:
    process = anybody.start("--", "sh", "-c", "echo ready; exec sleep 100")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.wait(TIME_LIMIT_S) == -signal.SIGTERM


def test_a_caller_that_ignores_its_children_is_told_of_the_end(anybody: Emulator) -> None:
    # SIGCHLD is bit 16; the command, too, has it ignored.
    words = anybody.words("--", "grep", "-q", "^SigIgn:.*[13579bdf]....$", "/proc/self/status")
    result = subprocess.run(
        ["env", "--ignore-signal=CHLD", *words], cwd="/tmp", timeout=TIME_LIMIT_S, check=False
    )
    assert result.returncode == 0


def test_it_stops_and_goes_on_with_the_command(anybody: Emulator) -> None:
    process = anybody.start("--", "sh", "-c", "kill -TSTP $$; exit 5", process_group=0)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(TIME_LIMIT_S) == 5


def test_what_the_command_leaves_running_is_ended(anybody: Emulator, marker: str) -> None:
    process = anybody.start(
        *("--", "sh", "-c", f"sleep {marker} & setsid sleep {marker} & (sleep {marker} &); exit 3"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.wait(TIME_LIMIT_S) == 3
    assert processes_with(marker) == []


def test_when_the_launcher_is_killed_nothing_is_left(anybody: Emulator, marker: str) -> None:
    script = f"sleep {marker} & setsid sleep {marker} & echo ready; exec sleep {marker}"
    process = anybody.start("--", "sh", "-c", script, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    wait_until(lambda: len(processes_with(marker)) >= 3)
    process.kill()
    process.wait(TIME_LIMIT_S)
    wait_until(lambda: not processes_with(marker))
    wait_until(lambda: not processes_with(str(anybody.program)))


def test_a_launcher_killed_at_any_moment_leaves_nothing(anybody: Emulator, marker: str) -> None:
    for delay_ms in range(0, 200, 20):
        process = anybody.start(
            *("--", "sleep", marker), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay_ms / 1000)
        process.kill()
        process.wait(TIME_LIMIT_S)
    wait_until(lambda: not processes_with(marker))
    wait_until(lambda: not processes_with(str(anybody.program)))


def servers_of(process: subprocess.Popen[bytes]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if Path(f"/proc/{child}/comm").read_text() == "headrace-files\n"
    ]


def test_when_the_server_is_killed_the_command_ends_with_a_reason(
    anybody: Emulator, marker: str
) -> None:
    script = f"setsid sleep {marker} & echo ready; exec sleep {marker}"
    process = anybody.start("--", "sh", "-c", script, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    (server,) = servers_of(process)
    os.kill(server, signal.SIGKILL)
    _, said = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 1
    assert b"the process that serves the emulated devices was killed" in said
    assert processes_with(marker) == []


def test_emulations_at_once_do_not_know_of_each_other(anybody: Emulator) -> None:
    show = "echo up; read x; ls /sys/bus/dsa/devices | grep -c dsa"
    all_of_them = [
        anybody.start("--devices", str(count), "--", "sh", "-c", show, stdin=-1)
        for count in range(1, 5)
    ]
    for process in all_of_them:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
    for count, process in enumerate(all_of_them, 1):
        out, _ = process.communicate(b"\n", TIME_LIMIT_S)
        assert (process.returncode, out) == (0, b"%d\n" % count)


def test_twenty_starts_leave_no_process(emulator: Emulator) -> None:
    for _ in range(20):
        assert emulator.run("--", "true").returncode == 0
    wait_until(lambda: not processes_with(str(emulator.program)))


def test_a_command_that_becomes_a_daemon_ends_with_the_emulation(
    anybody: Emulator, marker: str
) -> None:
    # Two forks and a new session, all files closed: what is left over is init's child elsewhere.
    script = (
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "os.closerange(0, 100)\n"
        f"os.execvp('sleep', ['sleep', '{marker}'])\n"
    )
    for _ in range(5):
        result = anybody.run("--", "/usr/bin/python3", "-c", script)
        assert result.returncode == 0
        assert processes_with(marker) == []


def test_statistics_are_written_also_if_the_command_crashed(
    anybody: Emulator, shared_path: Path
) -> None:
    path = shared_path / "stats.json"
    assert anybody.run("--stats", path, "--", "sh", "-c", "kill -SEGV $$").returncode == -11
    document = json.loads(path.read_text())
    assert document["schema"] == {"name": "headrace-emulate-statistics", "version": 1}
    assert document["results"]["command"]["signal"] == 11
    assert document["results"]["devices"][0]["name"] == "dsa0"
    assert document["summary"]["operations"] == 0
    assert all(isinstance(value, int) for value in document["summary"].values())
    assert [each.name for each in shared_path.iterdir()] == ["stats.json"]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param("truncate -s 0 $registers", id="cut_off"),
        pytest.param("head -c 200000 /dev/urandom 1<>$registers", id="scribbled_over"),
        # A phase that no device has, among others.
        pytest.param("head -c 200000 /dev/zero | tr '\\0' '\\377' 1<>$registers", id="all_ones"),
    ],
)
def test_a_command_that_spoils_the_registers_hurts_only_itself(
    anybody: Emulator, shared_path: Path, spoil: str
) -> None:
    script = f"registers=/dev/dsa-emulator/registers; {spoil}; cat /sys/bus/dsa/devices/*/state"
    words = ("env", "-u", "LD_PRELOAD", "sh", "-c", f"{script}; exit 3")
    result = anybody.run("--stats", shared_path / "stats.json", "--", *words)
    assert result.returncode == 3
    # Programs that begin later find that the devices are gone.
    lines = result.stderr.decode().splitlines()
    assert all("cannot open the registers of the emulated devices" in line for line in lines)
    assert len(json.loads((shared_path / "stats.json").read_text())["results"]["devices"]) == 1


def test_queues_are_named_as_asked(anybody: Emulator) -> None:
    show = "cat /sys/bus/dsa/devices/wq*/name | grep ."
    assert anybody.shell(show).stdout.split() == [b"headrace0", b"headrace1"]
    assert anybody.shell(show, "--wq-name", "a", "--wq", "shared").stdout.split() == [b"a0"]
    both = anybody.shell(show, "--wq-name", "dpdk_app", "--devices", "2").stdout.split()
    assert both == [b"shared", b"dpdk_app0", b"shared", b"dpdk_app0"]


def test_a_seed_fixes_addresses(anybody: Emulator) -> None:
    show = ("--", "grep", "-m1", "stack", "/proc/self/maps")
    runs = {anybody.run("--seed", "1", *show).stdout for _ in range(3)}
    assert len(runs) == 1


def test_a_program_that_is_not_there_or_not_executable(
    anybody: Emulator, shared_path: Path
) -> None:
    plain = shared_path / "plain"
    plain.write_text("")
    for command, code, words in (
        ("no-such-program", 127, "there is no such program in PATH"),
        ("/no/such/program", 127, "there is no such program"),
        (str(plain), 126, "not executable"),
        ("/tmp", 126, "it is a directory"),
    ):
        result = anybody.run("--", command)
        assert result.returncode == code
        assert words in result.stderr.decode()
        assert result.stderr.count(b"\n") == 1


@pytest.mark.skipif(not STATIC.exists(), reason="no static program is at hand")
def test_a_static_program_is_refused_before_it_starts(anybody: Emulator, shared_path: Path) -> None:
    result = anybody.run("--", STATIC, "-p")
    assert result.returncode == 126
    assert b"statically linked" in result.stderr
    script = shared_path / "script"
    script.write_text(f"#!{STATIC} -p\n")
    script.chmod(0o755)
    result = anybody.run("--", script)
    assert result.returncode == 126
    assert f"the interpreter of '{script}', is not".replace(" is not", "") in result.stderr.decode()
    assert result.stdout == b""


def test_a_script_without_an_interpreter_line_is_the_shells(
    anybody: Emulator, shared_path: Path
) -> None:
    script = shared_path / "script"
    script.write_text("echo $0 $1; exit 4\n")
    script.chmod(0o755)
    result = anybody.run("--", script, "word")
    assert result.stdout.decode() == f"{script} word\n"
    assert result.returncode == 4


@needs("su")
def test_what_a_set_user_id_program_lacks_is_said(anybody: Emulator) -> None:
    if not anybody.prefix:
        pytest.skip("root has nothing to gain by set-user-ID")
    result = anybody.run("--", "su", "--version")
    assert result.returncode == 0
    assert b"set-user-ID" in result.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--devices", "0"], "--devices: '0' is not a whole number from 1 to 16"),
        (["--wq", "any"], "--wq: there is no mode 'any'"),
        (["--pace", "fast"], "--pace: 'fast' is not LATENCY,RATE such as"),
        (["--pace", "2,30GB/s"], "--pace: '2,30GB/s' is not LATENCY,RATE such as '2us,30GB/s'"),
        (["--wq", "shared", "--wq-name", "dpdk_x"], "--wq-name: 'dpdk_x' would name no WQ"),
        (["--seed", "1", "--pace", "2us,0"], "--pace has no effect with --seed"),
        (["--frobnicate", "1"], "there is no option '--frobnicate'"),
        (["--config", "C", "--engines", "1"], "--engines cannot be given with --config"),
    ],
)
def test_wrong_use_is_exit_code_2(emulator: Emulator, arguments: list[str], words: str) -> None:
    result = emulator.run(*arguments, "--", "true")
    assert result.returncode == 2
    assert re.fullmatch(r"headrace: .*; see 'headrace emulate --help'\n", result.stderr.decode())
    assert words in result.stderr.decode()


def test_statistics_go_through_a_link_and_leave_it_a_link(
    emulator: Emulator, shared_path: Path
) -> None:
    target = shared_path / "target.json"
    link = shared_path / "link.json"
    link.symlink_to(target)
    for text in ("", "longer than any document" * 1000):
        if text:
            target.write_text(text)
        assert emulator.run("--stats", link, "--", "true").returncode == 0
        assert link.is_symlink()
        assert json.loads(target.read_text())["summary"]["operations"] == 0
    # Through a link to its own stdout it comes behind what the command said.
    said = shared_path / "said"
    own = shared_path / "own"
    own.symlink_to("/proc/self/fd/1")
    with said.open("wb") as file:
        emulator.start("--stats", own, "--", "echo", "hello", stdout=file).wait(60)
    first, rest = said.read_text().split("\n", 1)
    assert first == "hello"
    assert "summary" in json.loads(rest)
    assert own.is_symlink()


def test_a_trace_with_a_hole_is_an_error(emulator: Emulator) -> None:
    command = ("sh", "-c", "accel-config disable-wq dsa0/wq0.0 >/dev/null 2>&1; exit $CODE")
    for code, expected in (("0", 1), ("7", 7)):
        result = emulator.run(
            "--trace", "/dev/full", "--", *command, env=os.environ | {"CODE": code}
        )
        assert result.returncode == expected
        assert b"write '/dev/full' (--trace): events are missing in it" in result.stderr


def test_a_file_that_may_not_be_read_is_not_called_absent(
    anybody: Emulator, shared_path: Path
) -> None:
    if not anybody.prefix:
        pytest.skip("root may read everything")
    closed = shared_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "config").write_text("[]")
    for option in ("--config", "--faults"):
        result = anybody.run(option, closed / "config", "--", "true")
        assert result.returncode == 1
        assert b"permission denied" in result.stderr


def test_one_file_cannot_hold_statistics_and_trace(emulator: Emulator, shared_path: Path) -> None:
    path = shared_path / "both"
    result = emulator.run("--stats", path, "--trace", path, "--", "echo", "started")
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"--stats and --trace" in result.stderr
    assert not path.exists()


def test_a_dash_is_stdout(emulator: Emulator, shared_path: Path) -> None:
    result = emulator.run("--stats", "-", "--", "echo", "started")
    first, _, rest = result.stdout.decode().partition("\n")
    assert first == "started"
    assert json.loads(rest)["schema"]["name"] == "headrace-emulate-statistics"
    result = emulator.run("--trace", "-", "--stats", shared_path / "s", "--", "true")
    assert result.returncode == 0
    head, *events = map(json.loads, result.stdout.splitlines())
    assert head == {"format": "headrace-trace", "version": 1, "records": "json"}
    assert all(each["event"] for each in events)
    assert not Path("-").exists()


@pytest.mark.parametrize(
    "option, path, words",
    [
        ("--config", "/no/such/file", "there is no such file"),
        ("--config", "/etc/passwd/x", "there is no such file"),
        ("--config", "/tmp", "it is a directory"),
        ("--config", "/etc/passwd", "read the configuration '/etc/passwd': line 1 is not JSON"),
        ("--faults", "/no/such/file", "there is no such file"),
        ("--stats", "/no/such/file", "its directory does not exist"),
        ("--stats", "/tmp", "it is a directory"),
        ("--trace", "/no/such/file", "its directory does not exist"),
        ("--preload", "/no/such/file", "cannot be read"),
    ],
)
def test_a_bad_file_keeps_the_command_from_starting(
    emulator: Emulator, option: str, path: str, words: str
) -> None:
    result = emulator.run(option, path, "--", "echo", "started")
    assert result.returncode == 1
    assert result.stdout == b""
    assert words in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1


def test_it_needs_no_room_in_tmp_and_few_descriptors(anybody: Emulator) -> None:
    limited = (*anybody.prefix, "sh", "-c", 'ulimit -n 16; exec "$@"', "sh")
    script = "test -e /dev/dsa/wq0.0 && echo there"
    assert Emulator(anybody.program, limited).shell(script).stdout == b"there\n"
    if anybody.prefix or os.geteuid() != 0:
        return
    mounts = 'mount --bind /tmp /tmp; mount -o remount,ro,bind /tmp; exec "$@"'
    bare = ("unshare", "-m", "sh", "-ec", mounts, "sh")
    result = Emulator(anybody.program, bare).run("--", "sh", "-c", script, cwd="/")
    assert result.stdout == b"there\n", result.stderr.decode()


def test_an_environment_of_a_mebibyte_passes_through(anybody: Emulator) -> None:
    large = {f"LARGE_{number}": "x" * 100_000 for number in range(10)}
    result = anybody.run("--", "sh", "-c", "env | wc -c", env=os.environ | large)
    assert int(result.stdout) > 1_000_000


@contextlib.contextmanager
def own_mounts(libc: ctypes.CDLL) -> Iterator[None]:
    """This thread, and what it starts, see mounts that no other process sees."""
    new_mounts = 1 << 17  # CLONE_NEWNS.
    before, folder = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY), Path.cwd()
    assert libc.unshare(new_mounts) == 0
    try:
        assert libc.mount(b"none", b"/", None, 1 << 14 | 1 << 18, None) == 0  # MS_REC, MS_PRIVATE.
        yield
    finally:
        assert libc.setns(before, new_mounts) == 0
        os.chdir(folder)
        os.close(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system that hangs")
def test_a_process_that_cannot_be_killed_does_not_hold_the_launcher(
    emulator: Emulator, shared_path: Path
) -> None:
    # A FUSE file system whose server reads a request and answers it never: who waits for the answer
    # is in state D, and no signal ends it.
    place = shared_path / "hangs"
    said, has_it = shared_path / "said", shared_path / "has-it"
    place.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    # Else whatever looks at all mounts meanwhile waits for this one, and is answered never.
    with own_mounts(libc), contextlib.ExitStack() as ending:
        assert libc.mount(b"hangs", bytes(place), b"fuse", 0, options.encode()) == 0
        ending.callback(libc.umount2, bytes(place), 2)
        ending.callback(os.close, device)
        request = os.read(device, 1 << 20)
        unique = struct.unpack_from("=IIQ", request)[2]
        answer = struct.pack("=IIIIHHII", 7, 31, 0, 0, 0, 0, 1 << 16, 1) + bytes(32)
        os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
        # It ends once the server has the request: before, what waits can still be killed.
        script = f"cat {place}/x & while [ ! -e {has_it} ]; do sleep 0.01; done; exit 3"
        with said.open("wb") as file:
            process = emulator.start("--", "sh", "-c", script, stderr=file)
            os.read(device, 1 << 20)
            has_it.touch()
            assert process.wait(60) == 3
        assert "cannot be ended: it waits in the kernel (state D)" in said.read_text()


def test_the_command_hands_everything_on(
    emulator: Emulator, command_words: list[str], shared_path: Path
) -> None:
    del emulator  # Only whether it can be used here.
    stats = shared_path / "stats.json"
    options = ["--devices", "2", "--wq", "shared", "--stats", str(stats), "--seed", "7"]
    result = subprocess.run(
        [*command_words, *options, "--", "sh", "-c", "ls /dev/dsa --help >&2; ls /dev/dsa; exit 9"],
        capture_output=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 9, result.stderr
    assert result.stdout.split() == [b"wq0.0", b"wq1.0"]
    assert json.loads(stats.read_text())["results"]["deterministic"] is True


def test_the_version_is_that_of_headrace(emulator: Emulator) -> None:
    result = emulator.run("--version")
    assert (result.returncode, result.stdout) == (0, f"headrace {headrace.__version__}\n".encode())


def test_the_command_explains_itself(command_words: list[str]) -> None:
    result = subprocess.run(
        [*command_words, "--help"], capture_output=True, check=True, timeout=TIME_LIMIT_S
    )
    text = result.stdout.decode()
    assert "Example:\n    headrace emulate --wq shared" in text
    for option in ("--devices", "--config", "--wq-name", "--pace", "--refuse-mmap"):
        assert option in text
    for wrong in ([], ["--frobnicate", "--", "true"], ["--devices", "x", "--", "true"]):
        failed = subprocess.run(
            [*command_words, *wrong], capture_output=True, check=False, timeout=TIME_LIMIT_S
        )
        assert failed.returncode == 2
        assert failed.stderr.startswith(b"headrace: ")
        assert failed.stderr.count(b"\n") == 1
