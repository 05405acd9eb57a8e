# SPDX-License-Identifier: Apache-2.0
"""`headrace.tune`: the search for any routine, on measures that are made up, and on a real one."""

import json
import math
import os
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import tune
from headrace.errors import (
    CorruptDataError,
    Error,
    HardwareAbsentError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    VersionMismatchError,
)

SPACE = {"block": [1 << bits for bits in range(16)], "threads": range(1, 17), "mode": ("a", "b")}
BEST: tune.Setting = {"block": 512, "threads": 3, "mode": "b"}


class Machine:
    """A measure with noise, on a machine that becomes faster and slower."""

    def __init__(self, noise: float = 0.03) -> None:
        self.draw = random.Random(7)  # noqa: S311 - Nothing is secret here.
        self.noise = noise
        self.drift = 1.0
        self.asked: list[tune.Setting] = []

    def __call__(self, **setting: Any) -> float:
        self.asked.append(setting)
        self.drift = self.drift**0.99 * math.exp(self.draw.uniform(-0.1, 0.1))
        return self.drift * math.exp(self.draw.gauss(0, self.noise)) * cost(setting)


def cost(setting: Any) -> float:
    by_block: float = 1 + abs(math.log2(setting["block"]) - 9) / 5
    by_threads: float = 1 + abs(setting["threads"] - 3) / 4
    return by_block * by_threads * (1.0 if setting["mode"] == "b" else 1.2)


def test_the_best_of_512_settings_is_found_by_400_measurements() -> None:
    shares: list[float] = []
    machine = Machine()
    found = tune.search(SPACE, machine, measurements=400, progress=shares.append)
    assert found.best == BEST
    assert found.complete
    assert found.setting_count == 512
    assert found.measurement_count == len(machine.asked) <= 400
    assert len(found.measured) < 300
    assert found.measured[0][0] == BEST
    real = cost(found.reference) / cost(BEST)
    low, high = found.interval
    assert low < found.speed < high
    assert found.speed == pytest.approx(real, rel=0.1)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1


def test_the_interval_holds_the_true_speed() -> None:
    space = {"threads": range(1, 5)}
    held = 0
    for seed in range(20):
        machine = Machine(noise=0.1)
        machine.draw.seed(seed)
        found = tune.search(
            space, lambda machine=machine, **s: machine(block=512, mode="b", **s), measurements=200
        )
        low, high = found.interval
        held += low <= cost(found.reference | {"block": 512, "mode": "b"}) <= high
        assert found.best == {"threads": 3}
    assert held >= 16


def test_the_reference_stays_where_nothing_is_faster_for_certain() -> None:
    machine = Machine()
    noisy = {"x": [1, 2, 3, 4]}
    found = tune.search(
        noisy, lambda **_setting: machine.draw.lognormvariate(0, 0.3), measurements=150
    )
    assert found.best == found.reference == {"x": 1}
    assert found.speed == 1
    assert tune.search(SPACE, machine, reference=BEST, measurements=300).best == BEST


def test_what_loses_under_a_condition_is_not_chosen() -> None:
    machine = Machine()
    times = {
        "plain": {"warm": 1.0, "cold": 3.0},
        "bypassing": {"warm": 1.3, "cold": 1.0},
        "prefetching": {"warm": 0.95, "cold": 2.0},
    }

    def measure(way: str, condition: str) -> float:
        return times[way][condition] * machine(**BEST)

    everything = {"way": list(times)}
    found = tune.search(everything, measure, conditions=["warm", "cold"], measurements=300)
    assert found.best == found.rival == {"way": "prefetching"}
    assert found.speeds == pytest.approx({"warm": 1.05, "cold": 1.5}, rel=0.05)
    assert found.speed == pytest.approx(math.sqrt(1.5 / 0.95), rel=0.05)
    assert found.reason == "it is the fastest"
    del times["prefetching"]
    without = {"way": list(times)}
    found = tune.search(without, measure, conditions=["warm", "cold"], measurements=200)
    assert found.best == {"way": "plain"}
    assert found.rival == {"way": "bypassing"}
    assert re.fullmatch("another one loses 2[0-6]% when warm", found.reason)
    assert found.speed == found.interval[0] == 1
    by_command = tune.search(
        {"level": [2, 1]},
        ["sh", "-c", "echo {level}; test {condition} = cold"],
        conditions=["cold"],
        measurements=30,
    )
    assert by_command.best == {"level": 1}


def test_a_constraint_leaves_settings_out() -> None:
    machine = Machine()
    found = tune.search(
        SPACE, machine, constraint=lambda threads, **_others: threads > 4, measurements=300
    )
    assert found.best["threads"] == 5
    assert all(int(setting["threads"]) > 4 for setting in machine.asked)


def test_a_budget_is_kept() -> None:
    for count in (1, 2, 13, 60):
        machine = Machine()
        found = tune.search(SPACE, machine, measurements=count)
        assert len(machine.asked) == found.measurement_count == count
        assert found.complete == (count == 60)
    assert tune.search(SPACE, Machine(), seconds=0.2).seconds < 5
    only = tune.search({"x": [1]}, lambda **_setting: [3.0, 5.0], measurements=10)
    assert only.best == {"x": 1}
    assert only.time == 4
    assert only.complete


def test_a_command_line_is_measured_by_what_it_prints_or_by_its_time() -> None:
    printed = tune.search(
        {"level": [3, 1, 2]}, ["sh", "-c", "echo {level}; echo {level}.5"], measurements=60
    )
    assert printed.best == {"level": 1}
    timed = tune.search({"pause": [0.06, 0.01]}, ["sleep", "{pause}"], measurements=30)
    assert timed.best == {"pause": 0.01}
    with pytest.raises(tune.SearchError, match="ended with 3: too high"):
        tune.search({"x": [1]}, ["sh", "-c", "echo too high >&2; exit 3"])
    with pytest.raises(tune.SearchError, match="could not convert"):
        tune.search({"x": [1]}, ["echo", "slow"])


@pytest.mark.parametrize(
    "told, cause",
    [
        (None, "it returned nothing"),
        ([], "it returned no times"),
        (math.nan, "its time is nan"),
        (-1.0, "its time is -1"),
        ([1.0, 0.0], "its time is 0"),
        ("slow", "it returned 'slow'"),
        (math.inf, "its time is inf"),
    ],
)
def test_a_bad_time_is_named_and_what_was_measured_is_kept(
    told: Any, cause: str, tmp_path: Path
) -> None:
    machine = Machine()
    path = tmp_path / "kept.json"

    def measure(**setting: Any) -> Any:
        return told if len(machine.asked) == 100 else machine(**setting)

    with pytest.raises(tune.SearchError, match=cause) as caught:
        tune.search(SPACE, measure, measurements=400, save=path)
    problem = caught.value
    assert problem.setting.keys() == SPACE.keys()
    assert problem.result is not None
    assert len(problem.result.measured) > 50
    assert not problem.result.complete
    assert tune.load(path) == problem.result
    again = pickle.loads(pickle.dumps(problem))  # noqa: S301 - Ours.
    assert str(again) == str(problem)


def test_a_measure_that_raises_is_named_with_its_setting() -> None:
    def measure(x: int) -> float:
        if x == 3:
            message = "no memory"
            raise MemoryError(message)
        return float(x)

    with pytest.raises(tune.SearchError, match="measure x=3: it raised MemoryError: no memory"):
        tune.search({"x": [1, 2, 3]}, measure, measurements=50)


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    machine = Machine()

    def measure(**setting: Any) -> float:
        if len(machine.asked) == 60:
            raise KeyboardInterrupt
        return machine(**setting)

    path = tmp_path / "kept.json"
    with pytest.raises(KeyboardInterrupt):
        tune.search(SPACE, measure, save=path)
    assert tune.load(path).measurement_count == 61


@pytest.mark.parametrize(
    "space, options, cause",
    [
        ({}, {}, "there are no parameters"),
        ({"x": []}, {}, "'x' has no values"),
        ({"x": [1]}, {"constraint": lambda x: x > 1}, "no setting is valid"),
        ({"x": range(2000), "y": range(2000)}, {}, "4,000,000 settings"),
        ({"x": [object()]}, {}, "no number, text or bool"),
        ({"x": [math.nan]}, {}, "no number, text or bool"),
        ({"x": [1]}, {"seconds": 0}, "a budget of 0 seconds"),
        ({"x": [1]}, {"seconds": math.nan}, "a budget of nan seconds"),
        ({"x": [1]}, {"measurements": 0}, "a budget of 0 measurements"),
        ({"x": [1]}, {"measurements": -1}, "a budget of -1 measurements"),
        ({"x": [1]}, {"reference": {"y": 1}}, "the reference must have"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_measured(
    space: Any, options: Any, cause: str
) -> None:
    def measure(**_setting: Any) -> float:
        pytest.fail("it was measured")

    with pytest.raises(InvalidArgumentError, match=re.escape(cause)):
        tune.search(space, measure, **options)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    machine = Machine()
    with pytest.raises(NotFoundError):
        tune.search(SPACE, machine, save=tmp_path / "absent/x.json")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionDeniedError):
            tune.search(SPACE, machine, save=tmp_path / "x.json")
        tmp_path.chmod(0o700)
    assert not machine.asked


def test_a_saved_result_is_read_back_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    found = tune.search(SPACE, Machine(), measurements=200, save=path)
    assert tune.load(path) == found
    text = path.read_text()

    def refused(written: str, error: type[Error], cause: str) -> None:
        path.write_text(written)
        with pytest.raises(error, match=cause):
            tune.load(path)

    refused(text[: len(text) // 2], CorruptDataError, "truncated")
    refused("[]", CorruptDataError, "truncated")
    document = json.loads(text)
    refused(json.dumps(document | {"schema": {"name": "x"}}), CorruptDataError, "no result")
    schema = document["schema"] | {"version": 2}
    refused(json.dumps(document | {"schema": schema}), VersionMismatchError, "version 2")
    machine = document["machine"] | {"stepping": 99}
    refused(json.dumps(document | {"machine": machine}), HardwareAbsentError, "another processor")
    path.unlink()
    with pytest.raises(NotFoundError):
        tune.load(path)


def test_the_tutorial_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path(__file__).parents[2] / "docs/tutorials/tune-your-own.md"
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text.read_text("utf-8"), re.DOTALL):
        # Its budgets are for people; one block needs the C program of another one.
        exec(re.sub(r"seconds=\d+", "seconds=2", block), names)  # noqa: S102 - Ours.
    assert names["found"].best["block"] in names["space"]["block"]
    assert tune.load("sums.json") == names["found"]
    assert names["by_command"].measurement_count > 0
    assert "rows" in capsys.readouterr().out
