# SPDX-License-Identifier: Apache-2.0
"""``headrace sql``: TPC-H and one's own tables, the same answers in every mode."""

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from conftest import SCALE_FACTOR, TIME_LIMIT_S, Here

from headrace._plan import PlannedScan
from headrace._scenarios import find_machine
from headrace.table import Table
from headrace_lab.sim.advice import Scan, predict_scans
from headrace_lab.sql.prediction import simulated_on
from headrace_lab.sql.study import balanced_orders, same_rows
from headrace_lab.sql.tables import tpch_queries

TPCH = ("sql", "--tpch", str(SCALE_FACTOR))


@pytest.fixture(autouse=True)
def data(data_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(data_directory))


def document(here: Here, *words: str) -> dict[str, Any]:
    outcome = here(*words, "--json")
    assert outcome.code == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def test_all_queries_of_tpch_give_the_answers_of_duckdb(here: Here) -> None:
    words = (*TPCH, "--query", "all", "--prefetch", "on", "--rounds", "1")
    found = document(here, *words, "--path", "cpu")
    summary = found["summary"]
    assert summary["queries"] == summary["queries_equal"] == 22
    assert summary["share_from_copies"] > 0
    assert summary["bytes_moved"] > 0
    assert [*summary["copies_by_node"]] == ["0"]
    runs = [each["last_run"] for each in found["results"]["queries"].values()]
    assert sum(run["copies_by_node"].get("0", 0) for run in runs if run) > 0
    assert found["results"]["notes"] == []
    queries = found["results"]["queries"]
    # Every query is seen, and by its own tables.
    assert all(query["plan"] and query["row_count"] > 0 for query in queries.values())
    assert {scan["table"] for scan in queries["21"]["plan"]} == {
        "lineitem",
        "nation",
        "orders",
        "supplier",
    }


def test_a_small_cache_changes_no_answer(here: Here) -> None:
    words = (*TPCH, "--query", "1,9,18", "--prefetch", "on", "--rounds", "1")
    assert document(here, *words, "--capacity", "1MiB")["summary"]["queries_equal"] == 3


def test_a_plan_is_printed_and_nothing_is_run(here: Here) -> None:
    outcome = here(*TPCH, "--query", "6", "--plan")
    assert outcome.code == 0
    assert "l_shipdate (filter)" in outcome.stdout
    assert "l_extendedprice" in outcome.stdout


def test_a_prediction_is_kept_apart_from_what_was_measured(here: Here) -> None:
    words = (*TPCH, "--query", "6,13", "--rounds", "1")
    plain = document(here, *words)
    found = document(here, *words, "--simulate", "xeon-max-flat")
    simulated = found["results"].pop("simulated")
    assert found["results"].keys() == plain["results"].keys()
    assert found["summary"].keys() == plain["summary"].keys()
    assert simulated["kind"] == "simulated"
    # All cores of node 0 of that machine, however many this one has.
    assert (simulated["machine"], simulated["thread_count"]) == ("xeon-max-flat", 12)
    assert simulated["tables_on"] == {"node": 0, "kind": "ddr"}
    queries = simulated["queries"]
    assert set(queries) == {"6", "13"}
    for query in (*queries.values(), simulated["total"]):
        assert query["off_ms"] >= query["on_ms"] > 0
        assert query["gain"] == pytest.approx(query["off_ms"] / query["on_ms"] - 1)
        assert query["off_ms"] >= query["repeated_ms"] > 0
        assert query["repeated_gain"] == pytest.approx(query["off_ms"] / query["repeated_ms"] - 1)
    total = sum(query["off_ms"] for query in queries.values())
    assert simulated["total"]["off_ms"] == pytest.approx(total)


def test_a_prediction_is_printed_beside_a_plan_without_a_run(here: Here) -> None:
    words = (*TPCH, "--query", "6", "--plan", "--threads", "1")
    outcome = here(*words, "--simulate", "xeon-max-flat")
    assert outcome.code == 0, outcome.stderr
    assert (
        "Predicted for xeon-max-flat, 1 thread, tables on node 0 (ddr); simulated, not measured:"
    ) in outcome.stdout.replace("\n", " ")
    assert "DuckDB's time" not in outcome.stdout
    assert "Predicted" not in here(*words).stdout


def test_a_query_that_moves_nothing_says_so(here: Here, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(30)}), tmp_path / "t.parquet")
    words = ("--rounds", "1", "--simulate", "xeon-max-flat")
    outcome = here("sql", "--data", str(tmp_path), "SELECT sum(n) FROM t", *words)
    assert outcome.code == 0, outcome.stderr
    assert "Nothing to predict for xeon-max-flat: no column" in outcome.stdout


def test_a_scan_is_predicted_by_the_bytes_of_its_columns() -> None:
    rows = 1_000_000
    table = Table(pa.table({name: pa.array(range(rows), pa.int32()) for name in "abc"}))
    machine = find_machine("xeon-max-flat")
    simulated = simulated_on("xeon-max-flat", machine, None, None)

    def predicted(filters: tuple[str, ...], others: tuple[str, ...]) -> dict[str, Any]:
        plan = [PlannedScan("t", filters, others, table.movable_bytes([*filters, *others]))]
        return simulated.predict({"q": plan}, {"t": table})["q"]

    expected = predict_scans(machine, [Scan(rows, {"a": 4}, {"b": 4, "c": 4})], threads=12)
    assert predicted(("a",), ("b", "c")) == expected
    # A count by one column: it is moved as well.
    assert 0 < predicted(("a",), ())["off_ms"] < expected["off_ms"]
    assert simulated.predict({"q": []}, {"t": table}) == {}


def test_copies_in_hbm_gain_where_they_are_read_again() -> None:
    scans = [Scan(60_000_000, {"a": 4}, {"b": 16, "c": 16})]
    found = predict_scans(find_machine("xeon-max-flat"), scans, threads=12)
    assert found["repeated_gain"] > 0.2
    assert found["repeated_gain"] > found["gain"]
    one_kind = predict_scans(find_machine("spr-1dsa"), scans, threads=12)
    assert (one_kind["gain"], one_kind["repeated_gain"]) == (0, 0)


def test_tables_behind_cxl_gain_by_copies_in_ddr_from_the_second_run_on(here: Here) -> None:
    scans = [Scan(60_000_000, {"a": 4}, {"b": 16, "c": 16})]
    machine = find_machine("spr-cxl")
    near, far = (predict_scans(machine, scans, threads=8, home=home) for home in (0, 1))
    assert far["off_ms"] > near["off_ms"]
    assert near["tier"] == "ddr"
    assert near["gain"] == 0
    # All is read once behind CXL in the first run, by cores or devices, and nothing in the next.
    assert (far["tier"], far["gain"]) == ("cxl", 0)
    assert near["off_ms"] <= far["repeated_ms"] < far["on_ms"]
    assert far["repeated_gain"] > 1

    words = (*TPCH, "--query", "6", "--plan", "--simulate", "spr-cxl", "--tables-on")
    for place, node in (("cxl", "1 (cxl)"), ("3", "3 (cxl)"), ("ddr", "0 (ddr)")):
        outcome = here(*words, place)
        assert outcome.code == 0, outcome.stderr
        assert f"tables on node {node}" in outcome.stdout.replace("\n", " ")
    outcome = here(*words, "hbm")
    assert outcome.code == 2
    assert "it has no such memory; use ddr, cxl, 0, 1, 2, 3" in outcome.stderr


def test_files_of_a_folder_are_tables(here: Here, tmp_path: Path) -> None:
    numbers = pa.table({"n": range(20_000)})
    pq.write_table(numbers, tmp_path / "some numbers.parquet")
    pyarrow.feather.write_feather(numbers, tmp_path / "more.arrow", compression="uncompressed")
    query = 'SELECT sum(n) FROM "some numbers" JOIN more USING (n) WHERE n > 5'
    outcome = here("sql", "--data", str(tmp_path), query, "--rounds", "1")
    assert outcome.code == 0, outcome.stderr
    assert "199989985" in outcome.stdout
    outcome = here("sql", "--data", str(tmp_path), query, "--plan")
    assert "some numbers  n (filter)" in outcome.stdout
    assert "more          n (filter)" in outcome.stdout
    assert "mapped" not in outcome.stdout


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("sql", "SELECT 1"), "either --data DIR or --tpch"),
        (TPCH, "give what to run"),
        (("sql", "--data", ".", "--query", "1"), "give --tpch, too"),
        ((*TPCH, "--query", "23"), "numbers from 1 to 22"),
        ((*TPCH, "--query", "6", "--plan", "--json"), "leave out --json"),
        ((*TPCH, "--query", "6", "--simulate", "pdp-11"), "'pdp-11'"),
        ((*TPCH, "--query", "6", "--tables-on", "cxl"), "give --simulate, too"),
        ((*TPCH, "--query", "5..3"), "numbers from 1 to 22"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    here: Here, words: tuple[str, ...], sentence: str
) -> None:
    outcome = here(*words)
    assert outcome.code == 2
    assert sentence in outcome.stderr


def test_what_cannot_be_read_or_run_is_one_sentence(here: Here, tmp_path: Path) -> None:
    outcome = here("sql", "--data", str(tmp_path), "SELECT 1")
    assert outcome.code == 1
    assert "there is no .parquet, .arrow or .feather file" in outcome.stderr
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    outcome = here("sql", "--data", str(tmp_path), "SELECT 1")
    assert outcome.code == 1
    assert "broken.parquet" in outcome.stderr
    (tmp_path / "BROKEN.arrow").touch()
    outcome = here("sql", "--data", str(tmp_path), "SELECT 1")
    assert outcome.code == 2
    assert "'BROKEN.arrow' and 'broken.parquet' are the same table" in outcome.stderr
    outcome = here(*TPCH, "SELECT missing FROM lineitem")
    assert outcome.code == 1
    assert "missing" in outcome.stderr


@pytest.mark.parametrize("rest", [[], ["--plan"]])
@pytest.mark.parametrize(
    "text, kinds",
    [
        ("/* nothing */", "nothing"),
        ("COPY (SELECT 1) TO 'o.csv'", "COPY"),
        ("CREATE TABLE t (a INTEGER)", "CREATE"),
        ("SELECT 1; SELECT 2", "SELECT and SELECT"),
    ],
)
def test_only_one_query_is_run(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, kinds: str, rest: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = here(*TPCH, text, *rest)
    assert outcome.code == 2
    assert f"it is not one SELECT, but {kinds}" in outcome.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, package", [("sql", "duckdb"), ("query", "pyarrow")])
def test_a_package_that_is_missing_is_one_sentence(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [each for each in sys.modules if each.startswith("headrace_lab.")]:
        if module.endswith((f"commands.{name}", ".lineitem")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    outcome = here(name)
    assert outcome.code == 1
    assert f"the Python package {package} is not installed" in outcome.stderr
    assert 'pip install "headrace[sql]"' in outcome.stderr


def test_a_device_moves_the_columns(command_path: Path, emulator: Path) -> None:
    words = (*TPCH, "--query", "6,14", "--prefetch", "on", "--rounds", "3", "--json")
    done = subprocess.run(
        [emulator, "--", command_path, *words, "--path", "dsa"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["queries_equal"] == 2
    assert summary["bytes_by_device"] > 0


def test_the_tutorial_runs_as_it_is_written(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("sql", "--tpch", str(SCALE_FACTOR), "--query", "4", "--plan", "--data-dir", "tables")
    assert here(*words).code == 0
    (tmp_path / f"tables/sf{SCALE_FACTOR:g}").rename("tables/sf1")
    tutorial = Path(__file__).parents[2] / "docs/tutorials/prefetch-a-query.md"
    blocks = re.findall(r"```python\n(.*?)```", tutorial.read_text("utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks[:2]:  # The others need devices or packages.
        exec(block, names)  # noqa: S102 - Ours.
    printed = capsys.readouterr().out
    assert "Prefetched(" in printed
    assert "orders ('o_orderdate',) ('o_totalprice',)" in printed


def test_every_mode_is_measured_as_often_after_each_other_one() -> None:
    orders = balanced_orders("abcde")
    assert all(sorted(order) == list("abcde") for order in orders)
    pairs = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert set(pairs.values()) == {2}
    assert len(pairs) == 5 * 4


def test_the_summary_names_the_slowest_query_and_the_peak_of_memory(
    command_path: Path,
) -> None:
    # In a process of its own: what other tests have left in memory is not ours.
    words = (*TPCH, "--query", "1,9,18", "--rounds", "6", "--capacity", "4MiB", "--json")
    done = subprocess.run(
        [command_path, *words],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=True,
        env=os.environ,
    )
    found = json.loads(done.stdout)
    summary, queries = found["summary"], found["results"]["queries"]
    for mode in ("off", "auto"):
        ratios = {
            name: [
                own / other
                for own, other in zip(
                    query["modes"][mode]["times_ns"],
                    query["modes"]["duckdb"]["times_ns"],
                    strict=True,
                )
            ]
            for name, query in queries.items()
        }
        medians = {name: statistics.median(each) for name, each in ratios.items()}
        worst = summary[f"{mode}_worst_query"]
        assert summary[f"{mode}_vs_duckdb_worst"] == max(medians.values()) == medians[worst]
        spread = queries[worst]["spreads"][f"{mode}_vs_duckdb"]
        assert (spread["interval_low"], spread["interval_high"]) == (
            min(ratios[worst]),
            max(ratios[worst]),
        )
        assert summary[f"{mode}_vs_duckdb_high"] > 0
    assert 0.5 < summary["on_cpu_vs_duckdb"] < 20
    tables = sum(each["movable_bytes"] for each in found["results"]["tables"].values())
    assert tables < summary["peak_bytes"] < summary["peak_limit_bytes"]
    assert summary["peak_limit_bytes"] >= tables + (4 << 20) + (300 << 20)


def test_there_are_22_queries() -> None:
    queries = tpch_queries()
    assert list(queries) == [str(number) for number in range(1, 23)]
    assert all(query.startswith(("select", "with")) for query in queries.values())


def test_results_are_equal_up_to_the_order_of_rows_and_additions() -> None:
    assert same_rows([(1, 0.1), (2, 0.2)], [(2, 0.2), (1, 0.1 + 1e-15)])
    assert same_rows([(None, float("nan"))], [(None, float("nan"))])
    assert not same_rows([(1,)], [(2,)])
    assert not same_rows([(1,), (1,), (2,)], [(1,), (2,), (2,)])
    assert not same_rows([(1.0,)], [(1.0001,)])
    assert not same_rows([(1,)], [(1,), (1,)])
