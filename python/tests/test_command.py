# SPDX-License-Identifier: Apache-2.0
"""The command as a process: exit codes, sentences, documents, and what Ctrl-C leaves behind."""

import contextlib
import functools
import itertools
import json
import os
import pty
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest
from conftest import (
    ENDING,
    SCALE_FACTOR,
    TIME_LIMIT_S,
    Command,
    Here,
    has_come_to_us,
    wait_until,
)

import headrace
from headrace import _cli
from headrace._cli import _first
from headrace._cli._app import Group, walk
from headrace._scenarios import find_machine
from headrace_lab.tpch.baseline import Baseline
from headrace_lab.tpch.study import Series

MACHINES = Path(__file__).resolve().parents[2] / "tests" / "machines"
SMALL = ("query", "--scale-factor", str(SCALE_FACTOR), "--rounds", "2")


def children_of(process: subprocess.Popen[bytes]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_the_version_is_that_of_the_package(command: Command) -> None:
    result = command("--version")
    assert result.returncode == 0
    assert result.stdout == f"headrace {headrace.__version__}\n"


def test_alone_it_shows_this_machine_and_what_to_try_in_ten_lines(command: Command) -> None:
    result = command()
    assert result.returncode == 0
    assert not result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 10
    assert all(len(line) <= 80 for line in lines)
    assert headrace.topo().cpu_model in lines[1]
    assert sum(line.startswith("headrace ") for line in lines) == 3
    assert "headrace --help" in lines[-1]


@pytest.mark.parametrize("name", ["xeon-max-flat", "xeon-max-cache", "ddr-cxl", "bare-node"])
@pytest.mark.parametrize("profile", ["", "~/.config/headrace/copy.json"])
def test_ten_lines_do_for_every_machine(name: str, profile: str) -> None:
    machine = headrace.replay(MACHINES / f"{name}.json")
    shown = list(_first.lines(machine, profile))
    assert len(shown) == 10
    assert all(len(line) <= 80 for line in shown)
    assert ("headrace tune" in "".join(shown)) != bool(profile)
    assert ("headrace emulate" in "".join(shown)) != bool(machine.dsa_devices)


def test_a_command_imports_no_other(command_path: Path, data_directory: Path) -> None:
    small = ["--rounds", "1", "--data-dir", str(data_directory)]
    for arguments, absent in (
        (["--version"], ("click", "rich", "numpy", "headrace._cli")),
        (["--help"], ("rich", "numpy", "headrace._cli.topo", "headrace._core", "pyarrow")),
        (["emulate", "--help"], ("rich", "numpy", "headrace._cli.topo", "pyarrow")),
        (["topo"], ("numpy", "pyarrow", "matplotlib", "headrace_lab.commands.query")),
        # pyarrow loads pandas for some of its functions, which takes longer than all else.
        (["query", "--scale-factor", "0.01", *small], ("pandas", "matplotlib")),
        (["sql", "--tpch", "0.01", "--query", "6", *small], ("pandas", "matplotlib")),
    ):
        script = (
            "import os, sys\n"
            "from headrace import _command\n"
            f"sys.argv = ['headrace', *{arguments!r}]\n"
            "os._exit = lambda code: None\n"
            "_command.main()\n"
            f"print([name for name in {absent!r} if name in sys.modules], file=sys.stderr)\n"
        )
        done = subprocess.run(
            [command_path.parent / "python", "-c", script],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIME_LIMIT_S,
        )
        assert done.stderr == "[]\n", arguments


def test_the_summary_of_a_command_is_how_its_help_begins() -> None:
    for path, found, context in walk(_cli.app):
        for name, summary in getattr(found, "summaries", {}).items():
            assert isinstance(found, Group)
            below = found.get_command(context, name)
            assert below is not None
            assert below.help is not None
            assert below.help.startswith(summary.removesuffix(".")), (path, name)


def test_every_command_has_help_an_example_and_options_that_say_what_they_are() -> None:
    for path, found, context in walk(_cli.app):
        assert "Example:" in (found.help or ""), path
        for parameter in found.get_params(context):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, (path, parameter.name)
        for line in found.get_help(context).splitlines():
            assert len(line) <= 100


@pytest.mark.parametrize("words", [["-h"], ["topo", "-h"], ["bench", "cache", "-h"]])
def test_h_is_help(here: Here, words: list[str]) -> None:
    result = here(*words)
    assert result.code == 0
    assert result.stdout.startswith("Usage: headrace")
    assert "--json <" not in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["query", "--help"]])
def test_help_is_data_and_has_an_example(command: Command, arguments: list[str]) -> None:
    result = command(*arguments)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert not result.stderr
    assert "headrace query --scale-factor 1" in result.stdout


@pytest.mark.parametrize(
    "subcommand",
    [[], ["emulate"], ["doctor"], ["dsa"], ["dsa", "configure"], ["bench"], ["bench", "copy"]],
)
def test_help_fills_its_lines(command_path: Path, subcommand: list[str]) -> None:
    columns = 80
    result = subprocess.run(
        [command_path, *subcommand, "--help"],
        env=os.environ | {"COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TIME_LIMIT_S,
    )
    prose = [line.strip() for line in result.stdout.split("\n\n  Example:")[0].splitlines()]
    for line, following in itertools.pairwise(prose):
        if line and following:
            # Two columns at each side.
            assert len(line) + 1 + len(following.split()[0]) > columns - 4, line


def test_a_query_prints_both_answers_and_no_control_codes(command: Command) -> None:
    result = command(*SMALL)
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    assert "\x1b" not in result.stdout
    assert "1193053.2253" in result.stdout
    assert "the same" in result.stdout
    for word in ("prefetch off", "prefetch auto", "prefetch on", "DuckDB", "node 0"):
        assert word in result.stdout
    if not headrace.topo().has_faster_tier():
        assert "no faster tier" in result.stdout


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize("mode", ["off", "auto", "on"])
def test_a_document_has_the_agreed_figures(
    command: Command, documents: dict[str, Any], mode: str, tmp_path: Path
) -> None:
    picture = tmp_path / "timeline.svg"
    result = command(*SMALL, "--prefetch", mode, "--json", "--plot", str(picture), "--threads", "1")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == {"name": "headrace-query", "version": 1}
    assert document["machine"]["schema"]["name"] == "headrace-machine"
    summary = document["summary"]
    assert summary.keys() >= {
        "answer",
        "answer_duckdb",
        "time_vs_duckdb",
        "auto_vs_off",
        "on_vs_off",
        "bytes_moved",
        "hit_rate",
        "evictions",
        "mover",
    }
    values = [*summary.pop("copies_by_node").values(), *summary.values()]
    assert all(not isinstance(value, dict | list) for value in values)
    assert summary["answer"] == summary["answer_duckdb"] == 1193053.2253
    assert document["results"]["modes"].keys() == {"off", "auto", "on", "duckdb"}
    assert document["results"]["timelines"]["off"]
    assert (summary["bytes_moved"] > 0) == (summary["mover"] != "none")
    assert picture.stat().st_size > 0
    documents[mode] = summary["answer"]
    assert len(set(documents.values())) == 1


def test_memory_stays_below_columns_cache_and_240_mb(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pyarrow imports pandas, and its memory, wherever it is installed.
    (tmp_path / "pandas.py").write_text("raise ModuleNotFoundError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = command(*SMALL, "--prefetch", "on", "--json", "--capacity", "4MiB")
    results = json.loads(result.stdout)["results"]
    column_bytes = sum(place["bytes"] for place in results["column_nodes"])
    # It is 178 MB if the libraries were read from a file system, up to 221 if they were just
    # written: Linux 6.18 maps more of each then (large folios).
    assert results["memory_bytes_peak"] < column_bytes + (4 << 20) + 240_000_000


@pytest.mark.parametrize(
    "room",
    [
        ["--placement", "0", "--capacity", "256KiB", "--chunk-bytes", "32KiB"],
        # Eight chunks of 128 KiB in two columns, room for two of them.
        ["--threads", "1", "--capacity", "256KiB", "--chunk-bytes", "64KiB"],
    ],
)
def test_a_capacity_far_below_the_columns_gives_the_right_answer(
    command: Command, room: list[str]
) -> None:
    # Whether a run evicts is a matter of time, because no worker waits for a copy: on a busy
    # machine all is scanned before the first is there. tests/unit/lab makes copies evict.
    result = command(*SMALL, "--prefetch", "on", "--json", *room)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    summary = document["summary"]
    assert summary["answer"] == summary["answer_duckdb"]
    column_bytes = sum(place["bytes"] for place in document["results"]["column_nodes"])
    assert column_bytes > 6 * (256 << 10)


needs_no_device = pytest.mark.skipif(
    bool(headrace.topo().dsa_devices), reason="this machine has a DSA"
)


@needs_no_device
def test_without_a_dsa_the_query_falls_back_and_says_so(command: Command) -> None:
    # So many chunks and rounds that copies come in time however busy the machine is.
    chunks = ("--chunk-bytes", "16KiB", "--rounds", "20")
    options = ("--prefetch", "on", "--placement", "0", "--no-compare", *chunks)
    result = command(*SMALL, "--path", "auto", *options, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["summary"]["bytes_by_device"] == 0
    assert document["summary"]["mover"].startswith("cpu/")
    assert "'headrace doctor' shows why" in document["results"]["engine_notes"][0]
    text = command(*SMALL, "--path", "auto", *options).stdout
    assert "'headrace doctor' shows why" in text


@needs_no_device
def test_a_dsa_that_is_not_there_is_refused_with_the_doctors_reason(
    command: Command, tmp_path: Path
) -> None:
    headline = command("doctor").stdout.splitlines()[0]
    result = command(*SMALL, "--path", "dsa", data=tmp_path)
    assert result.returncode == 3
    assert not result.stdout
    assert not list(tmp_path.iterdir())
    assert result.stderr.count("\n") == 1
    assert headline.rstrip(".") in result.stderr
    assert "headrace emulate" in result.stderr
    assert "--path auto" in result.stderr


def test_without_comparison_duckdb_is_not_run(command: Command) -> None:
    result = command(*SMALL, "--no-compare", "--json")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)["summary"]
    assert summary["answer_duckdb"] is None
    assert summary["time_vs_duckdb"] is None


def test_a_file_can_be_given(command: Command, lineitem: Path) -> None:
    result = command("query", "--data", str(lineitem), "--rounds", "1", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["results"]["file"] == str(lineitem)


def test_measured_bandwidths_are_taken_of_this_machine_alone(
    here: Here, lineitem: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    assert here("topo", "--record", str(path)).code == 0
    record = json.loads(path.read_text())
    pair = {"initiator": record["nodes"][0]["node"], "read_gb_per_s": 5.5, "latency_ns": 99.5}
    pair["target"] = pair["initiator"]
    path.write_text(json.dumps(record | {"model": {"measured": {"pairs": [pair]}}}))
    asked = ("query", "--data", str(lineitem), "--rounds", "1", "--no-compare", "--json")
    result = here(*asked, "--measured", str(path))
    assert result.code == 0, result.stderr
    (access,) = (
        each
        for each in json.loads(result.stdout)["machine"]["accesses"]
        if each["evidence"] == "measured"
    )
    assert access["bandwidth_bytes_per_s"] == pytest.approx(5.5e9)
    result = here(*asked, "--measured", str(find_machine("xeon-max-flat")))
    assert result.code == 2
    assert "are not those of this machine" in result.stderr


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--frobnicate"], "No such option"),
        (["--path", "warp"], "--path: 'warp' is not auto, dsa or cpu"),
        (["--prefetch", "maybe"], "--prefetch: 'maybe' is not off, auto or on"),
        (["--scale-factor", "0"], "is not a number from 0.001"),
        (["--scale-factor", "-1"], "is not a number from 0.001"),
        (["--scale-factor", "1e30"], "is not a number from 0.001"),
        (["--scale-factor", "nan"], "is not a number from 0.001"),
        (["--scale-factor", "big"], "--scale-factor: 'big' is not a number"),
        (["--threads", "0"], "--threads: '0' is not a whole number from 1 to"),
        (["--threads", "x"], "--threads: 'x' is not a whole number from 1 to"),
        (["--threads", "100000"], "'100000' is not a whole number from 1 to"),
        (["--chunk-bytes", "1KiB"], "'1KiB' is not a size from 4 KiB"),
        (["--chunk-bytes", "wide"], "wide"),
        (["--capacity", "0"], "--capacity: '0' is not a size"),
        (["--capacity", "1 parsec"], "1 parsec"),
        (["--placement", "moon"], "'moon' is not"),
        (["--placement", "0:"], "'0:' is not"),
        (["--placement", "0:1,0:2"], "a map such as"),
        (["--placement", "0:8+x"], "'0:8+x' is not"),
        (["--placement", "0", "--capacity", "1000TiB"], "--capacity: node 0 has "),
        (["--capacity", "1000TiB"], "--capacity: node "),
        (["--rounds", "0"], "--rounds: '0' is not a whole number from 1 to 10000"),
        (["--rounds", "1000000"], "--rounds: '1000000' is not a whole number from 1 to 10000"),
        (["--plot", "picture.gif"], "ends in .svg or .png"),
        (["--plot", "/"], "ends in .svg or .png"),
        (["--plot", ""], "--plot: '' is not a path"),
        (["--data", ""], "--data: '' is not a path"),
        (["--data-dir", ""], "--data-dir: '' is not a path"),
        (["--data", "x.parquet", "--scale-factor", "1"], "cannot be given with --data"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2_before_there_is_data(
    here: Here, arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    result = here("query", *arguments)
    assert result.code == 2
    assert not list(tmp_path.iterdir())
    assert result.stderr.endswith("; see 'headrace query --help'\n")
    assert words in result.stderr
    assert result.stderr.startswith("headrace: ")
    assert result.stderr.count("\n") == 1
    assert not result.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--data", "none.parquet"], "no such file"),
        (["--data", __file__], "not a Parquet file"),
        (["--scale-factor", "100000"], "it takes about 15.28 TiB of memory and"),
        (["--plot", "/none/picture.svg"], "its directory does not exist"),
        (["--data-dir", "/proc/none"], "choose another folder by --data-dir"),
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    here: Here, arguments: list[str], words: str
) -> None:
    result = here("query", *arguments)
    assert result.code == 1, result.stderr
    assert words in result.stderr
    assert result.stderr.startswith("headrace: cannot ")
    assert result.stderr.count("\n") == 1
    assert not result.stdout


@pytest.mark.parametrize("option", ["--record", "--replay"])
def test_an_empty_path_of_a_record_is_wrong_use(here: Here, option: str) -> None:
    result = here("topo", option, "")
    assert result.code == 2
    assert result.stderr.startswith(f"headrace: {option}: '' is not a path")
    assert result.stderr.endswith("; see 'headrace topo --help'\n")


@pytest.mark.parametrize("placement", ["4711", "0:4711"])
def test_a_node_that_is_not_there_is_exit_code_3_before_there_is_data(
    here: Here, tmp_path: Path, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path))
    result = here("query", "--placement", placement)
    assert result.code == 3
    assert "node 4711" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_waited_for(here: Here, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = here("query", "--data", str(tmp_path / "pipe"))
    assert result.code == 2
    assert "it is not a regular file" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["topo", "--help"], ["topo", "--json"]]
)
def test_output_that_nobody_takes_is_one_sentence(command_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [command_path, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIME_LIMIT_S,
        )
    assert result.returncode == 1
    assert result.stderr.startswith("headrace: cannot write the output: ")
    assert result.stderr.count("\n") == 1


def test_a_closed_stdout_is_one_sentence(command_path: Path) -> None:
    result = subprocess.run(
        ["sh", "-c", f"'{command_path}' topo >&-"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 1
    assert "stdout is closed" in result.stderr
    assert result.stderr.count("\n") == 1


def test_figures_are_whole_on_a_narrow_terminal(command_path: Path, lineitem: Path) -> None:
    result = subprocess.run(
        [command_path, "query", "--data", str(lineitem), "--rounds", "1", "--prefetch", "on"],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIME_LIMIT_S,
        env=os.environ | {"COLUMNS": "60"},
    )
    lines = result.stdout.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("time in ms"))
    assert "…" not in result.stdout
    assert all(len(line) <= 60 for line in lines[begin : begin + 5])
    assert "Medians of 1 round," in result.stdout


def test_a_chunk_that_does_not_fit_the_capacity_is_told(command: Command) -> None:
    result = command(*SMALL, "--prefetch", "on", "--capacity", "8KiB", "--no-compare")
    assert result.returncode == 0, result.stderr
    assert "no chunk of 1 MiB fits the capacity of 8 KiB" in result.stdout


def test_copies_that_made_way_are_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    # How many do is a matter of time: no worker waits for a copy.
    for count, words in ((7, "7 copies were dropped to"), (1, "1 copy was dropped to"), (0, "")):
        monkeypatch.setattr(Series, "evictions", count)
        shown = here(*SMALL, "--prefetch", "on", "--no-compare").stdout
        assert ("dropped" in shown) == bool(count)
        assert words in shown


def test_a_picture_needs_no_home(command_path: Path, lineitem: Path, tmp_path: Path) -> None:
    (tmp_path / "home").touch()  # A file: nothing can be made below it, not even by root.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    picture = tmp_path / "timeline.svg"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"}
    }
    result = subprocess.run(
        [command_path, "query", "--data", str(lineitem), "--rounds", "1", "--plot", str(picture)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
        env=environment | {"HOME": str(tmp_path / "home"), "TMPDIR": str(temporary)},
    )
    assert result.returncode == 0
    assert not result.stderr
    assert picture.stat().st_size > 0
    assert not list(temporary.iterdir())
    assert "before the picture was drawn" in result.stdout


def test_another_answer_than_duckdbs_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], lineitem: Path
) -> None:
    def wrong(_self: Baseline) -> tuple[Decimal, int]:
        return Decimal(1), 1

    monkeypatch.setattr(Baseline, "run", wrong)
    monkeypatch.setattr("sys.argv", ["headrace", "query", "--data", str(lineitem), "--rounds", "1"])
    assert _cli.run_command_line() == 1
    captured = capfd.readouterr()
    assert "not the same" in captured.out
    assert "is not DuckDB's" in captured.err


def test_absent_hardware_is_exit_code_3(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise headrace.HardwareAbsentError("find a device", "there is none", "buy one")

    monkeypatch.setattr("headrace_lab.commands.query.topo", absent)
    monkeypatch.setattr("sys.argv", ["headrace", "query", "--data", __file__])
    assert _cli.run_command_line() == 3
    assert capfd.readouterr().err == "headrace: cannot find a device: there is none; buy one\n"


def test_a_reader_that_goes_away_is_no_complaint(command_path: Path, data_directory: Path) -> None:
    process = subprocess.Popen(
        [command_path, *SMALL, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HEADRACE_DATA": str(data_directory)},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(TIME_LIMIT_S) == 1


@contextlib.contextmanager
def started(command_path: Path, data: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [command_path, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"HEADRACE_DATA": str(data), "TMPDIR": str(data)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "signals, code",
    [
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
    ],
)
def test_ending_it_while_it_generates_leaves_nothing(
    command_path: Path, tmp_path: Path, signals: list[signal.Signals], code: int
) -> None:
    with started(command_path, tmp_path, "query", "--scale-factor", "3") as process:
        wait_until(lambda: bool(children_of(process)))
        children = children_of(process)
        for number in signals:
            os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == code
        assert not output
        assert not errors
        assert not any(is_alive(child) for child in children)
        assert not list(tmp_path.iterdir())


def test_ending_it_while_it_measures_leaves_nothing(
    command_path: Path, data_directory: Path
) -> None:
    before = sorted(data_directory.rglob("*"))
    with started(command_path, data_directory, *SMALL, "--rounds", "10000") as process:
        wait_until(lambda: "duckdb" in Path(f"/proc/{process.pid}/maps").read_text())
        time.sleep(0.5)  # Anywhere between the start of DuckDB and the last round will do.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == 130
        assert not output
        assert not errors
    assert sorted(data_directory.rglob("*")) == before


def test_ending_it_at_any_time_is_quiet_and_leaves_nothing(
    command_path: Path, tmp_path: Path
) -> None:
    chance = random.Random(1)  # noqa: S311 - Nothing is secret here.
    for number in range(int(os.environ.get("HEADRACE_ENDINGS", "6"))):
        directory = tmp_path / str(number)
        directory.mkdir()
        signal_sent = chance.choice(ENDING)
        delay_s = chance.uniform(0, 0.8)
        case = f"{signal_sent.name} after {delay_s:.3f} s"
        with started(command_path, directory, *SMALL, "--rounds", "10000") as process:
            # Before that the interpreter answers in its own way.
            wait_until(functools.partial(has_come_to_us, process.pid))
            time.sleep(delay_s)
            os.killpg(process.pid, signal_sent)
            output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == 128 + signal_sent, (case, errors)
        assert (output, errors) == (b"", b""), case
        left = {path.name for path in directory.rglob("*")} - {"sf0.01", "lineitem.parquet"}
        assert not left, case


@pytest.mark.parametrize("to_all", [True, False], ids=["Ctrl-C", "SIGTERM"])
def test_ending_a_benchmark_at_any_time_leaves_no_folder_and_no_child(
    command_path: Path, tmp_path: Path, *, to_all: bool
) -> None:
    arguments = ["bench", "pmem", "--directory", str(tmp_path)]
    for delay_s in (0, 0.02, 0.3):
        with started(command_path, tmp_path, *arguments) as process:
            wait_until(lambda: any(tmp_path.iterdir()))
            time.sleep(delay_s)
            children = children_of(process)
            if to_all:
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.terminate()
            output, errors = process.communicate(timeout=TIME_LIMIT_S)
        assert process.returncode == (130 if to_all else 143), (delay_s, errors)
        assert (output, errors) == (b"", b""), delay_s
        assert not any(is_alive(child) for child in children), delay_s
        assert not list(tmp_path.iterdir()), delay_s


def test_a_hangup_that_is_ignored_stays_so(command_path: Path) -> None:
    result = subprocess.run(
        ["nohup", "sh", "-c", f"'{command_path}' topo --json & kill -HUP $!; wait $!"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 0
    assert json.loads(result.stdout)


def test_a_terminal_sees_progress(command_path: Path, tmp_path: Path) -> None:
    try:
        terminal, other_end = pty.openpty()
    except OSError as error:
        pytest.skip(f"this machine has no pseudo-terminals: {error}")
    process = subprocess.Popen(
        [command_path, "query", "--scale-factor", "0.01", "--rounds", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=other_end,
        env=os.environ | {"HEADRACE_DATA": str(tmp_path), "TERM": "xterm"},
    )
    os.close(other_end)
    seen = b""
    # Reading the end of a terminal whose other side has gone is an error on Linux.
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 65536):
            seen += piece
    os.close(terminal)
    output, _ = process.communicate(timeout=TIME_LIMIT_S)
    assert process.returncode == 0
    assert b"generating TPC-H" in seen
    assert json.loads(output)["summary"]["answer"] == 1193053.2253
