# SPDX-License-Identifier: Apache-2.0
"""Reports at 80 columns: no line is longer, and no word of a table is broken or lost."""

import io
from pathlib import Path

import pytest
from conftest import SCALE_FACTOR, Here
from fabricated import fabricated, tuning
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace._cli._report import Column, Report, Table, figures
from headrace._cli._tune_report import print_report
from headrace._samples import machine_path

__all__ = ["fabricated"]

MACHINES = Path(__file__).resolve().parents[2] / "tests" / "machines"
DOCTOR_MACHINES = sorted(Path(machine_path("healthy")).parent.glob("*.json"))
WIDTH = 80

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=12)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    columns = draw(
        st.lists(
            st.builds(
                Column,
                title=TEXTS,
                right=st.booleans(),
                folds=st.booleans(),
                optional=st.integers(0, 2),
                key=st.booleans(),
            ),
            min_size=1,
            max_size=12,
        )
    )
    row = st.lists(TEXTS, min_size=len(columns), max_size=len(columns))
    return columns, draw(st.lists(row, max_size=5))


# A busy machine is slow, not wrong.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.integers(30, 160))
def test_no_line_is_longer_and_every_word_is_there(
    table: tuple[list[Column], list[list[str]]], width: int
) -> None:
    columns, rows = table
    lines = list(Table(columns, rows, width).lines())
    assert all(len(line) <= width for line in lines)
    shown = " ".join(lines).split()
    # What is left out is named; every other word is somewhere, whole.
    for index, column in enumerate(columns):
        if column.optional == 0:
            for row in rows:
                assert set(row[index].split()) <= set(shown), (lines, row[index])


def test_what_fits_is_shown_in_one_line_a_row() -> None:
    lines = list(Table([Column("name"), *figures("ns")], [["a", "1.5"], ["bcd", "10"]], 80).lines())
    assert lines == ["name   ns", "a     1.5", "bcd    10"]


def test_titles_and_texts_are_folded_first() -> None:
    columns = [Column("a"), Column("long title", right=True), Column("text", folds=True)]
    lines = list(Table(columns, [["x", "1", "some words here"]], 16).lines())
    assert lines == [
        "a   long  text",
        "   title",
        "x      1  some",
        "          words",
        "          here",
    ]


def test_columns_of_little_use_are_left_out_and_named() -> None:
    columns = [Column("a"), Column("b", optional=1), Column("c", optional=2), Column("d")]
    lines = list(Table(columns, [["1" * 10] * 4], 34).lines())
    assert lines[0].split() == ["a", "b", "d"]
    assert lines[-1] == "(not shown at 34 columns: c)"


def test_other_columns_stack_beside_their_keys() -> None:
    columns = [Column("key", key=True), *figures("first", "second", "third")]
    lines = list(Table(columns, [["k", "1" * 10, "2" * 10, "3" * 10]], 32).lines())
    assert [line.split() for line in lines] == [
        ["key", "first", "second"],
        ["k", "1" * 10, "2" * 10],
        [],
        ["key", "third"],
        ["k", "3" * 10],
    ]


def test_a_row_that_fits_nowhere_is_listed() -> None:
    lines = list(Table([Column("name"), Column("path")], [["n", "p" * 28]], 30).lines())
    assert lines == ["name: n", "path:", "  " + "p" * 28]


def test_prose_is_folded_at_a_width_and_nowhere_else() -> None:
    text = "one two three four five six seven"
    stream = io.StringIO()
    Report(stream, 24).say(text, head="head ")
    assert stream.getvalue() == "head one two three four\n     five six seven\n"
    stream = io.StringIO()
    Report(stream).say(text)
    assert stream.getvalue() == text + "\n"


def too_long(text: str) -> list[str]:
    """Lines that are wider than a terminal, though they have more than one word."""
    return [line for line in text.splitlines() if len(line) > WIDTH and len(line.split()) > 1]


COMMANDS = [
    ["sim", "list"],
    ["sim", "validate"],
    ["sim", "run", "submission"],
    ["sim", "run", "ddr-to-hbm"],
    ["sim", "advise", "--machine", "xeon-max-flat", "--bytes", "1GiB"],
    ["pmem", "check", "--list"],
    ["pmem", "check", "--variant", "naive", "--entries", "1", "--states", "4"],
    ["topo"],
    ["doctor"],
    ["query", "--scale-factor", str(SCALE_FACTOR), "--rounds", "1"],
    *(["bench", name] for name in ("cache", "copy", "emulator", "engine", "injection")),
    *(["bench", name] for name in ("message", "pmem")),
    *(["topo", "--replay", str(path)] for path in sorted(MACHINES.glob("*.json"))),
    *(["doctor", "--replay", path.stem] for path in DOCTOR_MACHINES),
    *(["dsa", "list", "--replay", path.stem] for path in DOCTOR_MACHINES),
]


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_report_of_a_command_fits_80_columns(
    words: list[str], here: Here, monkeypatch: pytest.MonkeyPatch, data_directory: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("HEADRACE_DATA", str(data_directory))
    narrow = here(*words).stdout
    assert not too_long(narrow)
    # These measure, or take long.
    if words[0] not in {"query", "topo", "pmem"} and words != ["sim", "validate"]:
        # The same words as at any width, but for what is named as left out.
        monkeypatch.setenv("COLUMNS", "400")
        left_out = "not shown at" in narrow
        missing = set(here(*words).stdout.split()) - set(narrow.split())
        assert left_out or not missing


def test_the_report_of_a_tuning_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    print_report(tuning(), Path("copy.json"))
    text = capsys.readouterr().out
    assert not too_long(text)
    assert "block 8, unaligned" in text
