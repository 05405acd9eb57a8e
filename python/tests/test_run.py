# SPDX-License-Identifier: Apache-2.0
"""``headrace run``: what passes through it, what it counts, what it refuses."""

import json
import os
import pty
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TIME_LIMIT_S, Command, Here

from headrace import _core
from headrace._cli.run import library_path
from headrace._direct import PRELOAD, PRELOAD_COPIES, preload_name
from headrace.errors import NotFoundError

PATHS = ("libc", "tuned", "dsa")
COPY = "b = bytes(range(256)) * 40000; assert (b + b)[-len(b):] == b; print('copied')"
PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture(autouse=True)
def _library_is_there() -> None:
    try:
        library_path()
    except NotFoundError:
        pytest.skip("this build has nothing to preload")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of this machine with a variant for every length from 4 KiB on."""
    document = json.loads(_core.empty_copy_profile())
    grid = _core.copy_variants(4097)
    document["classes"] = [{"bytes_max": 8192, "variant": grid[0] if grid else None}]
    path = tmp_path_factory.mktemp("profile") / "copy.json"
    path.write_text(json.dumps(document))
    return path


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(command: Command, profile: Path) -> Run:
    """Runs a program by the command, with the profile."""

    def with_profile(*words: str) -> subprocess.CompletedProcess[str]:
        return command("run", "--profile", str(profile), *words)

    return with_profile


def counted(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["schema"] == {"name": "headrace-run", "version": 1}
    return document


@pytest.fixture(params=["plain", "counted"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Without and with statistics: what passes through is the same."""
    if request.param == "plain":
        return ("--",)
    return ("--stats", str(tmp_path / "stats.json"), "--")


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_passes_through(run: Run, options: tuple[str, ...], code: int) -> None:
    assert run(*options, "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_the_signal_that_ended_the_program_passes_through(
    run: Run, options: tuple[str, ...], number: signal.Signals
) -> None:
    assert run(*options, "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_input_output_and_environment_pass_through(
    command_path: Path, options: tuple[str, ...]
) -> None:
    script = "cat; echo said >&2; ulimit -n; umask; grep -E 'Sig(Blk|Ign)' /proc/self/status; env"
    data = os.urandom(1 << 20)
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc/nonexistent", "LC_ALL": "C"}
    commands: list[list[str]] = [[], [str(command_path), "run", *options]]
    ends = [
        subprocess.run(
            [*words, "sh", "-c", script],
            input=data,
            capture_output=True,
            env=environment,
            timeout=TIME_LIMIT_S,
            check=True,
        )
        for words in commands
    ]
    for end in ends:
        assert end.stdout.startswith(data)
        assert end.stderr == b"said\n"
    without, within = (set(end.stdout[len(data) :].splitlines()) for end in ends)
    assert without <= within
    extra = {line.partition(b"=")[0] for line in within - without}
    assert extra <= {b"LD_PRELOAD", b"HEADRACE_COUNTERS"}


def test_a_dash_is_stdout(run: Run) -> None:
    done = run("--stats", "-", "--", "sh", "-c", "echo done; ls -A ./-")
    first, _, rest = done.stdout.partition("\n")
    assert first == "done"
    assert json.loads(rest)["schema"] == {"name": "headrace-run", "version": 1}
    assert "cannot access" in done.stderr


def test_statistics_say_who_moved_what(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    done = run("--stats", str(path), "--", PYTHON, "-S", "-c", COPY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "copied\n"
    document = counted(path)
    results, summary = document["results"], document["summary"]
    assert document["machine"]["nodes"]
    assert results["exit_code"] == 0
    assert results["signal"] is None
    assert summary["programs"] == 1
    assert summary["bytes_moved"] >= 4 * 256 * 40000
    if _core.copy_variants(4097):
        assert summary["programs_tuned"] == 1
        assert summary["bytes_tuned"] >= 3 * 256 * 40000
        assert "copies are tuned" in results["profile"]
    for function in results["functions"].values():
        assert set(function) == set(PATHS)
        for who in function.values():
            assert who["calls"] == sum(each["calls"] for each in who["lengths"])
            for each in who["lengths"]:
                assert each["bytes"] <= each["bytes_max"] * each["calls"]
                assert each["bytes"] >= each["bytes_max"] // 2 * each["calls"]
                assert 0 <= each["calls_timed"] <= each["calls"]
                assert each["calls_timed"] == each["calls"] or each["bytes_max"] <= 4096


def test_processes_are_added_up_however_they_end(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    ending = "import os, signal; os.closerange(0, 64); os.kill(os.getpid(), signal.SIG{})"
    script = "\n".join(
        f'{PYTHON} -S -c "{COPY}; {ending.format(name)}"' for name in ("TERM", "KILL")
    )
    done = run("--stats", str(path), "--", "sh", "-c", f"{script}\nexit 7")
    assert done.returncode == 7
    summary = counted(path)["summary"]
    assert summary["programs"] == 3
    assert summary["bytes_moved"] >= 2 * 4 * 256 * 40000


def test_a_signal_to_the_launcher_reaches_the_program(
    command_path: Path, profile: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "stats.json"
    script = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    words = ["run", "--profile", str(profile), "--stats", str(stats), "--", "sh", "-c", script]
    with subprocess.Popen([command_path, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "got it\n"
        assert process.wait(TIME_LIMIT_S) == 5
    assert counted(stats)["results"]["exit_code"] == 5


def test_closed_streams_stay_closed(command_path: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    words = [str(command_path), "run", "--stats", str(stats), "--", "sh", "-c"]
    for closed, numbers in (("<&- >&- 2>&-", "0 1 2"), ("2>&-", "2"), (">&- 2>&-", "1 2")):
        check = f"for n in {numbers}; do test ! -e /proc/$$/fd/$n || exit 9; done"
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", *words, check]
        done = subprocess.run(line, timeout=TIME_LIMIT_S, check=False)
        assert done.returncode == 0
        assert counted(stats)["results"]["exit_code"] == 0
        stats.unlink()


def state_of(process_id: int) -> str:
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_state(process_id: int, states: str) -> None:
    end = time.monotonic() + TIME_LIMIT_S
    while state_of(process_id) not in states:
        assert time.monotonic() < end, f"{state_of(process_id)} is not of {states}"
        time.sleep(0.005)


def test_the_launcher_stops_and_goes_on_as_the_program_does(
    command_path: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "stats.json"
    script = "kill -STOP $$; exit 4"
    with subprocess.Popen(
        [command_path, "run", "--stats", stats, "--", "sh", "-c", script]
    ) as process:
        wait_for_state(process.pid, "T")
        process.send_signal(signal.SIGCONT)
        assert process.wait(TIME_LIMIT_S) == 4
    assert counted(stats)["results"]["exit_code"] == 4


def test_control_c_ends_both_once(command_path: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    script = (
        "import signal, sys; came = []; signal.signal(signal.SIGINT, lambda *_: came.append(1));"
        "print('ready', flush=True); wait = lambda: signal.sigtimedwait([], 0.1);"
        "[wait() for _ in iter(lambda: bool(came), True)]; wait();"
        "sys.exit(40 + len(came))"
    )
    process_id, terminal = pty.fork()
    if process_id == 0:
        words = [str(command_path), "run", "--stats", str(stats), "--", PYTHON, "-S", "-c", script]
        os.execv(words[0], words)  # noqa: S606 - It is the command.
    try:
        said = b""
        while b"ready" not in said:
            said += os.read(terminal, 100)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(process_id, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 41
    assert counted(stats)["results"]["exit_code"] == 41


def test_ours_is_preloaded_first_and_once(
    run: Run, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", f"libm.so.6 {library_path()} {library_path(PRELOAD_COPIES)}")
    done = run(*options, "sh", "-c", "echo $LD_PRELOAD")
    # Counting takes the library that has all functions.
    ours = PRELOAD if "--stats" in options else PRELOAD_COPIES
    assert done.stdout == f"{library_path(ours)}:libm.so.6\n"


def test_memset_and_memcmp_are_replaced_only_where_the_profile_has_something_for_them(
    tmp_path: Path, profile: Path
) -> None:
    path = tmp_path / "headrace/copy.json"
    path.parent.mkdir()
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert preload_name(home) == preload_name({}) == PRELOAD_COPIES
    document = json.loads(profile.read_text())
    stays, tuned = ({"bytes_max": 8192, "kernel": kernel} for kernel in (None, "ymm"))
    for added, expected in (
        ({}, PRELOAD_COPIES),
        ({"fills": [stays], "comparisons": [stays]}, PRELOAD_COPIES),
        ({"fills": [stays], "comparisons": [tuned]}, PRELOAD),
        ({"fills": [tuned]}, PRELOAD),
        ({"dsa_bytes_min": 65536}, PRELOAD),
    ):
        for indent in (None, 2):
            path.write_text(json.dumps(document | added, indent=indent))
            assert preload_name(home) == preload_name({"HEADRACE_PROFILE": str(path)}) == expected
    assert preload_name(home | {"HEADRACE_PROFILE": "none"}) == PRELOAD_COPIES
    assert preload_name({"HEADRACE_PATH": "dsa", "HEADRACE_PROFILE": "none"}) == PRELOAD


def test_copies_below_min_bytes_stay_the_c_librarys(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    done = run("--min-bytes", "1GiB", "--stats", str(path), "--", PYTHON, "-S", "-c", COPY)
    assert done.returncode == 0
    assert counted(path)["summary"]["bytes_tuned"] == 0


def test_without_a_home_or_a_profile_copies_are_the_c_librarys(
    command_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "stats.json"
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc/sys"}
    done = subprocess.run(
        [command_path, "run", "--stats", path, "--", PYTHON, "-S", "-c", COPY],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("copied\n", "")
    document = counted(path)
    assert document["summary"]["bytes_tuned"] == 0
    assert "no such file" in document["results"]["profile"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a setuid program")
def test_a_setuid_program_runs_without_us(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Path(tmp_path_factory.mktemp("setuid"))
    for each in (place, *place.parents[:2]):
        each.chmod(0o755)
    program = place / "env"
    shutil.copy("/usr/bin/env", program)
    program.chmod(0o4755)
    path = place / "stats.json"
    as_user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = run("--stats", str(path), "--", *as_user, str(program))
    if done.returncode == 126 or os.statvfs(place).f_flag & os.ST_NOSUID:
        pytest.skip("setuid programs are not heeded there")
    assert done.returncode == 0, done.stderr
    # The linker takes the variable away from a program with borrowed rights.
    assert "libheadrace-preload" not in done.stdout
    assert counted(path)["summary"]["programs"] == 1


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((), "there is no command to run"),
        (("--", ""), "there is no command to run"),
        (("--path", "gpu", "--", "true"), "--path: 'gpu' is not auto, cpu or dsa"),
        (("--min-bytes", "many", "--", "true"), "--min-bytes: 'many'"),
        (("--min-bytes", "2000000TiB", "--", "true"), "'2000000TiB' is not a size"),
        (("--profile", "", "--", "true"), "'' is not a path"),
        (("--stats", "", "--", "true"), "'' is not a path"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    here: Here, arguments: tuple[str, ...], sentence: str
) -> None:
    done = here("run", *arguments)
    assert done.code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, code, sentence",
    [
        (("--profile", "/proc/nonexistent", "--", "true"), 1, "no such file"),
        (("--stats", "/", "--", "true"), 2, "it is a directory"),
        (("--stats", "/proc/nonexistent/s.json", "--", "true"), 1, "it cannot be written"),
        (("--", "/proc/nonexistent"), 127, "there is no such program"),
        (("--", "/etc/passwd"), 126, "cannot be executed"),
        (("--stats", "/dev/null", "--", "/proc/nonexistent"), 127, "there is no such program"),
        (("--stats", "/dev/null", "--", "/etc/passwd"), 126, "cannot be executed"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    command: Command, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    done = command("run", *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_bad_profile_is_told_before_the_program_runs(
    here: Here, profile: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(profile.read_text()[:100])
    done = here("run", "--profile", str(path), "--", "true")
    assert done.code == 1
    assert "truncated" in done.stderr
    foreign = json.loads(profile.read_text())
    foreign["machine"]["model"] += 1
    path.write_text(json.dumps(foreign))
    done = here("run", "--profile", str(path), "--", "true")
    assert done.code == 3
    assert "another machine" in done.stderr
    assert str(path) in done.stderr


def test_a_profile_that_is_a_pipe_is_not_waited_for(here: Here, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = here("run", "--profile", str(pipe), "--", "true")
    assert done.code == 1
    assert f"'{pipe}': it is not a regular file" in done.stderr


def test_looking_whether_bytes_are_cold_is_asked_for(run: Run) -> None:
    show = "import os; print(os.environ.get('HEADRACE_PROBE'))"
    for options, said in (((), "None\n"), (("--probe",), "1\n")):
        done = run(*options, "--", PYTHON, "-c", f"{show}; {COPY}")
        assert done.stdout == said + "copied\n"


def processor_seconds(words: tuple[str, ...], environment: dict[str, str]) -> float:
    """Processor time of a program from its start to its end."""
    child = os.posix_spawn(words[0], words, environment)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def test_a_start_costs_less_than_half_a_start_of_python(tmp_path: Path) -> None:
    # Both in this run and in turns, since a machine may be busy: 5 ms are half of what Python takes
    # on one of 2.5 GHz.
    document = json.loads(_core.empty_copy_profile())
    for bits in range(8, 27):
        grid = [
            each for each in _core.copy_variants((1 << bits) // 2 + 1) if not each.startswith("zmm")
        ]
        document["classes"].append(
            {"bytes_max": 1 << bits, "variant": grid[len(grid) // 2] if grid else None}
        )
    profile = tmp_path / "copy.json"
    profile.write_text(json.dumps(document))
    bare = {"PATH": "/usr/bin:/bin"}
    ours = bare | {"LD_PRELOAD": str(library_path()), "HEADRACE_PROFILE": str(profile)}
    programs = {
        "bare": (("/bin/true",), bare),
        "ours": (("/bin/true",), ours),
        "python": ((PYTHON, "-I", "-S", "-c", "pass"), bare),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(21):
        for name, (words, environment) in programs.items():
            seconds[name].append(processor_seconds(words, environment))
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    assert middle["ours"] - middle["bare"] < middle["python"] / 2, middle
