# SPDX-License-Identifier: Apache-2.0
"""The simulator as a person uses it: scenarios, sweeps, pictures, and how far off it is."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import _core
from headrace._apps.sim.sweep import points_of
from headrace._cli import run_command_line
from headrace._scenarios import find_machine, pace_of, run, scenario, scenarios
from headrace.errors import Error, NotFoundError
from headrace.machine import Machine, replay
from headrace_lab.sim.advice import advise_data, predict_query
from headrace_lab.sim.measured import (
    Effort,
    Measurement,
    Pair,
    ask,
    hosts,
    measure,
    model_of,
    stream,
)

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `headrace sim ...` in this process: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["headrace", "sim", *arguments])
        code = run_command_line()
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure memory that is no memory: what is tested is that all is asked."""
    for name in ("_SPAN_MIN", "_SPAN_MAX"):
        monkeypatch.setattr(f"headrace_lab.sim.measured.{name}", 1 << 20)


def test_every_scenario_answers_on_its_machine() -> None:
    for each in scenarios():
        (result,) = run(each.name)
        assert result.figures, each.name
        assert all(math.isfinite(value) for value in result.figures.values()), each.name


def test_the_same_command_prints_the_same(command: Command) -> None:
    arguments = ("run", "submission", "--machine", "spr-1dsa", "--json")
    first = command(*arguments)
    assert first[0] == 0
    assert command(*arguments) == first
    assert json.loads(first[1])["summary"]["kind"] == "simulated"


def test_a_picture_says_that_it_is_simulated_and_is_the_same_twice(
    command: Command, tmp_path: Path
) -> None:
    texts = []
    for name in ("a.svg", "b.svg"):
        code, _, err = command("run", "ddr-to-hbm", "--plot", str(tmp_path / name))
        assert (code, err) == (0, "")
        texts.append((tmp_path / name).read_text(encoding="utf-8"))
    assert "(simulated)" in texts[0]
    # A ceiling that a line reaches is a band on both sides of it.
    assert texts[0].count("stroke-opacity: 0.25") == len((1, 2, 4, 8))
    assert [each for each in texts[0].split("\n") if "dc:date" not in each] == [
        each for each in texts[1].split("\n") if "dc:date" not in each
    ]


def test_all_are_listed(command: Command) -> None:
    code, out, _ = command("list")
    assert code == 0
    assert all(each.name in out for each in scenarios())
    code, out, _ = command("list", "--json")
    assert code == 0
    assert json.loads(out)["summary"]["scenarios"] == len(scenarios())


def test_a_range_doubles_and_a_list_is_as_written() -> None:
    points = points_of(scenario("submission"), ["bytes=64:1KiB", "mode=async,sync"])
    assert [each["bytes"] for each in points[::2]] == ["64", "128", "256", "512", "1024"]
    assert [each["mode"] for each in points[:2]] == ["async", "sync"]


@pytest.mark.parametrize(
    "text, says",
    [
        ("bytes", "no '='"),
        ("bytes=", "no '='"),
        ("byte=64", "bytes, mode"),
        ("bytes=1KiB:64", "smaller value first"),
        ("bytes=0:64", "from 1"),
        ("mode=sync:async", "no order"),
        ("bytes=64:10parsec", "unit"),
    ],
)
def test_a_sweep_that_is_no_sweep_is_refused(text: str, says: str) -> None:
    with pytest.raises(Error, match=says):
        points_of(scenario("submission"), [text])


def test_a_sweep_without_end_is_refused() -> None:
    values = ",".join(["64"] * 400)
    with pytest.raises(Error, match="160000 points"):
        points_of(scenario("submission"), [f"bytes={values}", f"depth={values}"])


def test_wrong_use_is_one_sentence_and_exit_2(command: Command, tmp_path: Path) -> None:
    for arguments, says in (
        (("run", "submision"), "sim list"),
        (("run", "submission", "--machine", "spr"), "spr-1dsa"),
        (("run", "submission", "--sweep", "bytes=64", "--sweep", "bytes=65"), "twice"),
        (("run", "submission", "--plot", str(tmp_path / "f.pdf")), ".svg"),
    ):
        code, out, err = command(*arguments)
        assert (code, out) == (2, ""), arguments
        assert says in err, arguments
        assert err.count("\n") == 1, arguments


def test_what_the_machine_lacks_is_said(command: Command) -> None:
    code, _, err = command("run", "optane", "--machine", "spr-1dsa")
    assert code == 1
    assert "ddr-optane" in err


def test_a_damaged_model_names_field_line_and_remedy(command: Command, tmp_path: Path) -> None:
    record = json.loads(find_machine("spr-1dsa").read_text(encoding="utf-8"))
    record["model"]["nodes"][0]["peak"]["value"] = "307.2"
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record, indent=2), encoding="utf-8")
    line = next(
        number
        for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if '"307.2"' in text
    )
    code, _, err = command("run", "submission", "--machine", str(path))
    assert code == 1
    assert f"line {line}: field 'model.nodes[0].peak.value'" in err
    assert "GB/s" in err


def test_a_machine_is_found_by_its_former_name() -> None:
    assert find_machine("xeon-max-9468") == find_machine("xeon-max-flat")


def test_an_unknown_machine_names_those_there_are() -> None:
    with pytest.raises(NotFoundError, match="xeon-max-flat"):
        find_machine("nosuch")


def test_advice_is_to_move_what_is_read_often_and_to_leave_what_has_nowhere_to_go(
    command: Command,
) -> None:
    code, out, _ = command(
        "advise", "--machine", "xeon-max-flat", "--bytes", "1GiB", "--passes", "16", "--json"
    )
    assert code == 0
    summary = json.loads(out)["summary"]
    assert (summary["tier"], summary["mover"]) == ("hbm", "dsa")
    assert summary["gain"] > 0.5
    code, out, _ = command("advise", "--machine", "spr-1dsa", "--bytes", "1GiB", "--json")
    assert json.loads(out)["summary"]["mover"] == "none"
    # CXL is slower than DDR: what lies in DDR stays.
    code, out, _ = command("advise", "--machine", "spr-cxl", "--bytes", "1GiB", "--passes", "9")
    assert "Leave the data" in out


def test_data_whose_pointers_are_followed_is_left_in_ddr(command: Command) -> None:
    asked = ("advise", "--machine", "xeon-max-flat", "--bytes", "1GiB", "--passes", "1000")
    for pattern, mover in (("scan", "dsa"), ("update", "dsa"), ("chase", "none")):
        code, out, _ = command(*asked, "--pattern", pattern, "--json")
        assert (code, json.loads(out)["summary"]["mover"]) == (0, mover), pattern


def test_each_command_says_what_holds_without_a_machine(command: Command) -> None:
    said = {name: " ".join(command(name, "--help")[1].split()) for name in ("run", "advise")}
    assert "default: the scenario's" in said["run"]
    assert "needed with --bytes" in said["advise"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "--bytes and --trace"),
        (["--bytes", "1GiB", "--trace", "t"], "--bytes and --trace"),
        (["--bytes", "1 league"], "is not a size"),
        (["--bytes", "1GiB", "--passes", "0"], "--passes"),
    ],
)
def test_advice_without_a_question_is_refused(
    command: Command, arguments: list[str], says: str
) -> None:
    code, out, err = command("advise", "--machine", "spr-1dsa", *arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_the_prediction_for_the_query_is_the_advised_one() -> None:
    predicted = predict_query(
        find_machine("xeon-max-flat"), row_count=6_001_215, chunk_bytes=1 << 20, threads=12
    )
    assert predicted["kind"] == "simulated"
    assert predicted["on_ms"] <= predicted["off_ms"]
    # Without faster memory nothing is moved, so that both are the same.
    stays = predict_query(
        find_machine("spr-1dsa"), row_count=6_001_215, chunk_bytes=1 << 20, threads=12
    )
    assert (stays["gain"], stays["mover"]) == (0, "none")
    assert stays["on_ms"] == stays["off_ms"]


def test_the_pace_of_an_emulated_device_is_that_of_the_machine_file() -> None:
    latency, rate = pace_of("spr-1dsa").split(",")
    assert 1000 < float(latency.removesuffix("ns")) < 1300
    assert float(rate.removesuffix("GB/s")) == pytest.approx(31.4, rel=0.01)
    with pytest.raises(Error, match="no DSA"):
        pace_of("ddr-optane")


_LITTLE = Effort(samples=1, round_us=20, time_max_ms=20)


def _pair(initiator: int, target: int, threads: int, rate: float, latency: float) -> Pair:
    return Pair(initiator, target, threads, rate, rate / 2, rate / 2, latency)


@pytest.mark.usefixtures("little_memory")
def test_the_model_of_this_machine_is_one_that_can_be_simulated(tmp_path: Path) -> None:
    native, text = _core.Machine.make_record()
    machine = Machine.from_native(native)
    measurement = measure(machine, rounds=1, effort=_LITTLE)
    pairs = measurement.pairs
    assert {each.threads for each in pairs} >= {1}
    assert all(min(each.read_gb_per_s, each.copy_gb_per_s, each.latency_ns) > 0 for each in pairs)
    assert measurement.values["compute"] > 0
    path = tmp_path / "here.json"
    record = json.loads(text) | {"model": model_of(machine, measurement)}
    path.write_text(json.dumps(record), encoding="utf-8")
    (result,) = run("memory", machine=str(path))
    assert result.figures["gb_per_s"] > 0
    # Nothing faster is there on most machines, but the question can be asked of all.
    assert advise_data(path, 1 << 30, passes=1, threads=1)


def test_a_thread_that_begins_after_its_round_has_ended_measures_something() -> None:
    native, _ = _core.Machine.make_record()
    home = hosts(Machine.from_native(native))[0]
    late = Effort(samples=1, round_us=0, time_max_ms=20)
    for what, access in (("streams", "read"), ("streams", "copy"), ("latency", "read")):
        value = ask(what, [stream(access, home.cpus[0], home.id, 1 << 20)], late).value
        assert 0 < value < math.inf, (what, access)


def test_rates_stay_within_their_limits_when_they_are_rounded(tmp_path: Path) -> None:
    machine = replay(find_machine("spr-1dsa"))
    random = np.random.default_rng(18)

    def limits_hold(read: float, fill: float, copy: float) -> dict[str, Any]:
        model = model_of(machine, Measurement([Pair(0, 0, 1, read, fill, copy, 100.0)]))
        node = model["nodes"][0]
        peak, reads, mixed = (
            float(node[key]["value"].split()[0]) for key in ("peak", "read", "mixed")
        )
        assert reads / 2 <= mixed <= 2 * reads, (read, copy)
        assert max(reads, mixed) <= peak, (read, copy)
        return model

    for _ in range(500):
        read = 10 ** random.uniform(-1, 3)
        # Also copies that no machine can do, and next to none: noise must not make a record that
        # cannot be read.
        limits_hold(read, read * random.uniform(0.1, 3), read * random.choice([0.01, 1, 1.0001, 5]))
    path = tmp_path / "here.json"
    record = json.loads(find_machine("spr-1dsa").read_text())
    for read, copy in ((12.3456, 12.3456), (12.3454, 0.1)):
        path.write_text(json.dumps(record | {"model": limits_hold(read, read, copy)}))
        assert run("memory", machine=str(path))


def test_a_model_of_two_sockets_has_links_and_remote_latencies() -> None:
    machine = replay(find_machine("spr-4dsa"))
    pairs = [
        _pair(initiator, target, threads, rate * threads, latency)
        for initiator, target, rate, latency in (
            (0, 0, 10.0, 100.0),
            (0, 1, 5.0, 200.0),
            (1, 0, 5.0, 200.0),
            (1, 1, 10.0, 100.0),
        )
        for threads in (1, 32)
    ]
    model = model_of(machine, Measurement(pairs))
    assert model["nodes"][0]["read"]["value"] == "320 GB/s"
    assert model["nodes"][0]["write"]["value"] == "160 GB/s"
    assert model["nodes"][0]["latency"]["value"] == "100 ns"
    assert model["nodes"][0]["remote_latency"]["value"] == "200 ns"
    assert model["links"] == [
        {
            "from": 0,
            "to": 1,
            "rate": {"value": "160 GB/s", "source": "measured by headrace topo"},
        }
    ]
    assert "handover" not in model["core"]


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda model: model.update(color="red"), "'model.color' is not known"),
        (lambda model: model["core"].pop("copy"), "'model.core.copy' is missing"),
        (
            lambda model: model["nodes"][0]["peak"].update(value="0 GB/s"),
            "write a value above 0",
        ),
        (lambda model: model["nodes"][0]["read"].update(value="1e6 GB/s"), "less than 'read'"),
        (
            lambda model: model["links"].append(
                {"from": 0, "to": 7, "rate": {"value": "9 GB/s", "source": "assumed"}}
            ),
            "'model.links[0].to' is 7, which 'model.sockets' lacks",
        ),
        (lambda model: model["nodes"][0].update(node=5), "the machine has no such node"),
        (lambda model: model["nodes"][0]["peak"].pop("source"), "'assumed'"),
        (
            lambda model: model["core"].update(
                levels=[
                    {
                        key: {"value": value, "source": "assumed"}
                        for key, value in (
                            ("bytes", size),
                            ("cores", "1"),
                            ("read", "9 GB/s"),
                            ("fill", "9 GB/s"),
                            ("copy", "9 GB/s"),
                        )
                    }
                    for size in ("2 MiB", "1 MiB")
                ]
            ),
            "write the smallest first",
        ),
    ],
)
def test_what_no_machine_can_be_names_field_line_and_remedy(
    command: Command, tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    record = json.loads(find_machine("spr-1dsa").read_text(encoding="utf-8"))
    change(record["model"])
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record, indent=2), encoding="utf-8")
    code, out, err = command("run", "submission", "--machine", str(path))
    assert (code, out) == (1, "")
    assert re.search(r"line \d+: field 'model", err), err
    assert says.replace("'assumed'", '"assumed"') in err


def test_a_device_with_more_engines_than_there_are_is_refused(
    command: Command, tmp_path: Path
) -> None:
    record = json.loads(find_machine("spr-1dsa").read_text(encoding="utf-8"))
    record["movers"]["dsa_devices"][0]["engine_count"] = 5
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(record, indent=2), encoding="utf-8")
    code, _, err = command("run", "submission", "--machine", str(path))
    assert code == 1
    assert "5 engines" in err
    assert "at most 4" in err


@pytest.mark.parametrize(
    "name", ["ddr-to-hbm", "priorities", pytest.param("qdp", marks=pytest.mark.long)]
)
def test_the_same_scenario_gives_the_same_document(command: Command, name: str) -> None:
    first = command("run", name, "--json")
    assert first[0] == 0
    assert command("run", name, "--json") == first
