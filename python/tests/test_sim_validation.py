# SPDX-License-Identifier: Apache-2.0
"""How far off the simulator is: of published figures, and of this machine."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace import _core
from headrace._apps.sim.provenance import numbers_of, published_series
from headrace._cli import run_command_line
from headrace._scenarios import machines
from headrace.machine import Machine
from headrace_lab.sim import here, measured
from headrace_lab.sim.measured import Effort, Figure, Sample, Task, hosts, measure_tasks
from headrace_lab.sim.validation import (
    ERROR_MEDIAN_MAX,
    ERROR_WORST_MAX,
    Validation,
    validate,
)

Command = Callable[..., tuple[int, str, str]]
_LITTLE = Effort(samples=1, round_us=20, time_max_ms=20)


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


@pytest.fixture(scope="module")
def validation() -> Validation:
    return validate()


def test_what_is_held_out_is_enough_and_of_several_sources() -> None:
    held_out = [each for each in published_series() if each["use"] == "held_out"]
    assert sum(len(each["points"]) for each in held_out) >= 30
    assert len({each["name"].partition("-")[0] for each in held_out}) >= 3


def test_held_out_figures_are_near(validation: Validation) -> None:
    assert validation.broken == []
    assert validation.summary["error_median"] <= ERROR_MEDIAN_MAX
    assert validation.summary["error_worst"] <= ERROR_WORST_MAX
    assert validation.summary["points"] >= 20


def test_a_held_out_figure_that_one_number_of_the_model_moves_is_counted_apart(
    validation: Validation,
) -> None:
    restating = {each.series for each in validation.points if each.restates_input}
    assert restating >= {"thesis-ceiling", "kuper-ceiling", "dsa2lm-ceiling", "optane-six"}
    assert restating >= {"kuper-leaky-from", "dsa2lm-break-even", "max9462-together"}
    assert not restating & {"lightdsa-sync-aligned", "max9462-remote-latency", "kuper-over-cpu"}
    summary = validation.summary
    assert summary["points_restating_inputs"] == sum(p.restates_input for p in validation.points)
    assert summary["points"] + summary["points_restating_inputs"] == len(validation.held_out)
    # Points that restate an input do not soften the median, but the worst is the worst of all.
    errors = sorted(abs(each.error) for each in validation.held_out)
    assert summary["error_worst"] == pytest.approx(errors[-1], abs=1e-4)


@pytest.mark.long
def test_what_figures_share_with_the_inputs_of_the_model_is_derived_from_the_model() -> None:
    script = Path(__file__).parents[2] / "scripts" / "sim_provenance.py"
    command = [sys.executable, str(script), "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_published_figure_above_what_the_model_can_reach_still_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    series = {
        "name": "above",
        "source": "a test",
        "use": "held_out",
        "machine": "xeon-max-flat",
        "scenario": "ddr-to-hbm",
        "metric": "gb_per_s",
        "key": "target",
        "fixed": {"policy": "all", "devices": 8},
        "points": [[8, 140.8]],
    }
    fitted = next(each for each in published_series() if each["name"] == "lightdsa-sync")
    module = "headrace_lab.sim.validation"
    monkeypatch.setattr(f"{module}.published_series", lambda: [series, fitted])
    inputs = {"inputs": {"above": [["a", "b"]]}, "echoes": {}}
    monkeypatch.setattr(f"{module}.provenance", lambda: inputs)
    found = validate()
    assert [(each.flag, each.use) for each in found.held_out] == [("", "held_out")]
    assert found.summary["error_worst"] > 0.4
    assert found.broken


def test_a_source_that_leaves_open_what_was_measured_is_shown_both_ways_and_not_counted(
    validation: Validation,
) -> None:
    for name in ("max9468-hbm", "8475b-ddr"):
        both = [each for each in validation.points if each.series.startswith(name)]
        assert len({each.published for each in both}) == 1
        assert len({each.simulated for each in both}) == 2
        assert all("does not say" in each.flag for each in both)
    flagged = [each for each in validation.points if each.flag]
    assert validation.summary["flagged"] == len(flagged)
    assert not [each for each in validation.held_out if each.flag]


def test_every_figure_that_is_not_counted_says_why(validation: Validation) -> None:
    for use in ("doubtful", "not_modelled"):
        found = [each for each in validation.points if each.use == use]
        assert found
        assert all(each.flag for each in found)


def test_no_number_is_fitted_to_what_is_held_out(validation: Validation) -> None:
    use_of = {each["name"]: each["use"] for each in published_series()}
    fitted_to: dict[str, set[str]] = {}
    for name, path in machines().items():
        numbers = numbers_of(json.loads(path.read_text(encoding="utf-8"))["model"])
        fitted_to[name] = {each.fitted_to for each in numbers if each.fitted_to}
        # All are in the data: none hides in the text of a source.
        assert not [each for each in numbers if "fitted" in each.source], name
    assert set().union(*fitted_to.values()) <= {n for n, use in use_of.items() if use == "fit"}
    assert len(fitted_to["spr-1dsa"]) >= 8
    # Each number that moves a held-out figure is one of those.
    moving = {name for each in validation.held_out for name in each.inputs}
    assert moving >= {"dsa.fabric", "core.copy", "dsa.alone"}


def test_a_figure_that_a_number_was_fitted_to_alone_is_printed_as_published(
    command: Command, validation: Validation
) -> None:
    echoes = {each.series for each in validation.points if each.is_echo}
    assert echoes >= {"optane-ring", "optane-dimm", "lightdsa-read-back", "injection-gain"}
    rings = [each for each in validation.points if each.series == "optane-ring"]
    assert all(each.is_echo for each in rings)
    code, out, _ = command("run", "page-faults", "--json")
    assert code == 0
    results = json.loads(out)["results"]
    published = {each["parameters"]["fault"]: each["published"] for each in results}
    assert published.pop("none") == published.pop("iotlb") == []
    assert set(map(tuple, published.values())) == {("gb_per_s", "page_us")}
    assert json.loads(out)["summary"]["kind"] == "simulated and published"
    code, out, _ = command("run", "optane", "--sweep", "ring=cached,no-dax")
    assert "(published)" in out
    assert "*8.76" in out


def test_a_broken_threshold_ends_with_1(
    command: Command, monkeypatch: pytest.MonkeyPatch, validation: Validation
) -> None:
    monkeypatch.setattr("headrace_lab.sim.validation.ERROR_WORST_MAX", 0.01)
    monkeypatch.setattr("headrace_lab.commands.sim.validate.validate", lambda: validation)
    code, out, err = command("validate", "--json")
    assert code == 1
    assert json.loads(out)["summary"]["points"] >= 20
    assert "more than 1%" in err


def test_validate_prints_table_and_summary(
    command: Command, validation: Validation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which it makes itself in test_schemas.py, from the same numbers.
    monkeypatch.setattr("headrace_lab.commands.sim.validate.validate", lambda: validation)
    code, out, _ = command("validate", "--json")
    assert code == 0
    document = json.loads(out)
    assert set(document["summary"]) >= {"points", "error_median", "error_worst", "flagged"}
    assert document["schema"] == {"name": "headrace-sim-validate", "version": 1}
    code, out, _ = command("validate")
    assert code == 0
    assert "Held out: 23 points" in out
    assert "published" in out


@pytest.mark.usefixtures("little_memory")
def test_calibration_and_validation_take_turns_and_measure_different_things(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def note(
        tasks: Iterable[Task], share: Callable[[float], None], *, rounds: int, effort: Effort
    ) -> dict[str, Figure]:
        def traced(task: Task) -> Task:
            def ask(effort: Effort) -> Sample:
                asked.append(task.key)
                return task.ask(effort)

            return Task(task.key, ask)

        return measure_tasks([traced(each) for each in tasks], share, rounds=rounds, effort=effort)

    monkeypatch.setattr("headrace_lab.sim.measured.measure_tasks", note)
    comparison = here.compare(rounds=2, effort=_LITTLE)
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    validated = [each.what for each in comparison.points]
    assert set(validated) < set(asked)
    assert len(set(asked)) == len(asked) // 2
    for kind in ("copy", "fill", "update", "update beside read", "query 6"):
        assert any(each.startswith(kind) for each in validated), kind
    calibrated = {int(each.split()[1]) for each in asked if re.fullmatch(r"call \d+ \w+", each)}
    sizes = {
        _core.parse_bytes(each) for each in re.findall(r"copy (.*?) in memory", str(validated))
    }
    assert not sizes & calibrated
    assert (min(sizes) < min(calibrated), max(sizes) > max(calibrated)) == (True, True)
    native, _ = _core.Machine.make_record()
    cpus = len(hosts(Machine.from_native(native))[0].cpus)
    # Threads for five sizes; for each number of threads a size, and whether the query prefetches.
    assert len(comparison.decisions) == 5 + 2 * len({1, cpus})
    assert comparison.summary["decisions"] == len(comparison.decisions)
    assert all(math.isfinite(each.simulated) and each.simulated > 0 for each in comparison.points)


def test_the_choice_by_predictions_is_compared_with_the_measured_best() -> None:
    def point(what: str, unit: str, measured: float, simulated: float) -> here.Point:
        return here.Point(what, unit, measured, 0.03, simulated, "")

    def question(*choices: tuple[str, str]) -> Any:
        task = Task("", lambda _: Sample(0))
        return here._Question(task, "", "", {}, "", choices)  # noqa: SLF001

    questions = [
        question(("threads", "1")),
        question(("threads", "2")),
        question(("query", "off")),
        question(("query", "on")),
        question(("size", "4 KiB")),
        question(("size", "64 KiB")),
    ]
    points = [
        point("copy by 1", "GB/s", 10, 11),
        point("copy by 2", "GB/s", 18, 20),
        # Not 2 % better as simulated: it stays off, and loses 20 %.
        point("off", "ms", 10, 10),
        point("on", "ms", 8, 9.9),
        # The worse is chosen, and within the spread.
        point("4 KiB", "GB/s", 9.8, 12),
        point("64 KiB", "GB/s", 10, 11),
    ]
    threads, query, size = here._decide(questions, points)  # noqa: SLF001
    assert (threads.advised, threads.best, threads.regret, threads.agrees) == ("2", "2", 0, True)
    assert (query.advised, query.best, query.agrees) == ("off", "on", False)
    assert query.regret == pytest.approx(0.2)
    assert (size.advised, size.best, size.agrees) == ("4 KiB", "64 KiB", True)


def test_however_much_measurements_vary_a_choice_may_not_lose_more_than_a_tenth() -> None:
    task = Task("", lambda _: Sample(0))
    make = here._Question  # noqa: SLF001
    questions = [make(task, "", "", {}, "", (("q", way),)) for way in ("1", "2")]
    ways = [here.Point(way, "GB/s", rate, 0.6, 1 / rate, "") for way, rate in (("1", 8), ("2", 10))]
    (choice,) = here._decide(questions, ways)  # noqa: SLF001
    assert (choice.advised, choice.best, choice.agrees) == ("1", "2", False)
    assert choice.regret == pytest.approx(0.2)
    assert choice.tolerance == pytest.approx(0.1)


def _comparison(errors: list[float], disturbed: float) -> here.Comparison:
    points = tuple(here.Point("a copy", "GB/s", 10, 0.01, 10 * (1 + each), "") for each in errors)
    return here.Comparison(points, {}, disturbed, 3)


def test_validation_of_this_machine_fails_above_its_threshold_and_says_under_which_load(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "compare", lambda *_, **__: _comparison([0.05, -0.09, 0.3], 0.0))
    code, out, err = command("validate", "--here", "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)["summary"]
    assert (summary["points"], summary["error_median"], summary["error_worst"]) == (3, 0.09, 0.3)
    assert (summary["flagged"], summary["loaded"]) == (0, False)
    monkeypatch.setattr(here, "compare", lambda *_, **__: _comparison([0.05, -0.11, 0.3], 0.2))
    code, out, err = command("validate", "--here")
    assert code == 1
    assert "11.0%, more than 10%" in err
    assert "disturbed 20%" in err
    assert "loaded" in out
    monkeypatch.setattr(here, "compare", lambda *_, **__: _comparison([0.05, -0.09, 0.6], 0.0))
    code, out, err = command("validate", "--here")
    assert code == 1
    assert "'a copy' is off by +60.0%, more than 50%" in err


def test_rounds_of_validation_have_limits(command: Command) -> None:
    code, out, err = command("validate", "--here", "--rounds", "0")
    assert (code, out) == (2, "")
    assert "--rounds" in err


def test_rounds_on_other_processors_of_the_host_do_not_count() -> None:
    figures = {"handover": Figure([300.0, 45.0, 280.0], 9, 1), "copy": Figure([46.0, 24.0, 48.0])}
    chosen = measured.in_one_state(figures)
    assert {key: each.values for key, each in chosen.items()} == {
        "handover": [300.0, 280.0],
        "copy": [46.0, 48.0],
    }
    assert (chosen["handover"].rounds, chosen["handover"].disturbed) == (9, 1)
    alone = {"copy": Figure([1.0, 2.0])}
    assert measured.in_one_state(alone)["copy"].values == [1.0, 2.0]
