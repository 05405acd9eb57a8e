# SPDX-License-Identifier: Apache-2.0
"""``headrace report``: its page and what it says of guidelines."""

import html.parser
import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Here
from fabricated import FACTS, fabricated

import headrace
from headrace._scenarios import Result, run
from headrace_lab.families.measure import Outcome, Shown
from headrace_lab.families.picture import Line, Panel
from headrace_lab.families.points import Place
from headrace_lab.report.cards import cards_of
from headrace_lab.report.guidelines import Measured, guidelines_of
from headrace_lab.report.page import page_of

__all__ = ["fabricated"]


class Page(html.parser.HTMLParser):
    """What a page links to, and the names that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append(tag)
        self.ids += [value for name in ("id",) if (value := known.get(name))]
        self.links += [value for name in ("href", "src") if (value := known.get(name))]


_simulated: dict[str, list[Result]] = {}


@pytest.fixture(autouse=True)
def simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate each line once for all tests: a second for those of a report, with equal results."""

    def once(name: str, points: list[dict[str, object]], *, machine: str) -> list[Result]:
        key = json.dumps([name, points, machine])
        if key not in _simulated:
            _simulated[key] = run(name, points, machine=machine)
        return _simulated[key]

    monkeypatch.setattr("headrace_lab.report.cards.run", once)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, which take seconds."""
    monkeypatch.setattr("headrace_lab.report.page._drawings", lambda cards: [""] * len(cards))


@pytest.fixture
def report(request: pytest.FixtureRequest, here: Here, tmp_path: Path) -> dict[str, Any]:
    """The document of a report, whose page is in report.html."""
    for name in ("fabricated", "undrawn"):
        request.getfixturevalue(name)
    result = here("report", "--rounds", "5", "--output", str(tmp_path / "report.html"), "--json")
    assert result.code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    (tmp_path / "report.json").write_text(result.stdout)
    return document


@pytest.mark.usefixtures("fabricated")
def test_a_page_is_one_small_file_with_all_figures_and_guidelines(
    here: Here, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    report = json.loads(here("report", "--rounds", "1", "--output", str(path), "--json").stdout)
    text = path.read_text(encoding="utf-8")
    assert text.count("<svg") == text.count('role="img"') == report["summary"]["figures"]
    summary = report["summary"]
    assert summary["figures"] >= 20
    assert summary["guidelines"] >= 20
    assert summary["bytes"] == len(text.encode()) <= 3e6
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.tags
    for link in page.links:
        assert link.startswith(("#", "data:")), link
        assert not link.startswith("#") or link[1:] in page.ids, link
    assert page.tags.count("figure") == summary["figures"]
    assert not re.search(r"url\((?!#)", text)
    for figure in report["results"]["figures"]:
        assert figure["name"] in page.ids
        for line in figure["lines"]:
            assert line["points"], (figure["name"], line["label"])
    for guideline in report["results"]["guidelines"]:
        assert guideline["figure"] in page.ids
    assert f" by Headrace {headrace.__version__}, 1 rounds of each point" in text
    untold = summary["guidelines"] - summary["guidelines_judged"]
    assert (f"<summary>{untold} cannot be told here</summary>" in text) == (untold > 0)


@pytest.mark.usefixtures("fabricated", "undrawn")
def test_the_terminal_names_in_one_line_what_cannot_be_told(here: Here, tmp_path: Path) -> None:
    said = here("report", "--rounds", "1", "--output", str(tmp_path / "report.html")).stdout
    lines = [line for line in said.splitlines() if "cannot be told" in line]
    assert len(lines) == 1, said


def test_every_guideline_is_judged_where_everything_is_measured(report: dict[str, Any]) -> None:
    open_ones = [
        each["name"]
        for each in report["results"]["guidelines"]
        if each["verdict"] == "cannot be told"
    ]
    assert open_ones == [
        "G5 use several engines",  # All groups of the fabricated machine have four.
    ]
    by_source = Counter(each["source"] for each in report["results"]["guidelines"])
    assert by_source["León: cache injection"] == 2
    assert by_source["Kappes and Anastasiadis: Asterope"] == 2
    credited = {each["name"]: each["source"] for each in report["results"]["guidelines"]}
    assert "LightDSA" in credited["do not block on faults"]


def outcome(family: str, *figures: tuple[str, str, float], emulated: bool = False) -> Outcome:
    shown = tuple(
        Shown(Place("panel", line, x, "gb_per_s"), emulated, (value,)) for line, x, value in figures
    )
    return Outcome(family, shown, (), partial=False)


@pytest.mark.parametrize(
    "batched, emulated, verdict",
    [(2.0, False, "holds"), (1.0, False, "does not hold"), (2.0, True, "not judged")],
)
def test_a_verdict_rests_on_figures_of_real_devices(
    batched: float, verdict: str, *, emulated: bool
) -> None:
    figures = (("shared, batches of 32", "4 KiB", batched), ("shared, waited for", "4 KiB", 1.0))
    outcomes = {"submission": outcome("submission", *figures, emulated=emulated)}
    found = guidelines_of(Measured(outcomes, no_queue="", has_tiers=False))
    (judged,) = [each for each in found if each.name == "batch small copies"]
    assert judged.verdict.state == verdict
    assert f"ratio {batched:.2f}" in judged.verdict.reason


def verdict_of(name: str, *outcomes: Outcome) -> str:
    found = {each.family: each for each in outcomes}
    judged = guidelines_of(Measured(found, no_queue="", has_tiers=False))
    return next(each.verdict.state for each in judged if each.name == name)


def test_what_is_measured_is_judged() -> None:
    ring = (("libpmem_staged", "256 B", 2.0), ("libpmem_balcer", "256 B", 1.0))
    assert verdict_of("keep a checksum, spare a fence", outcome("rings", *ring)) == "holds"
    sizes = ("1 KiB", "64 KiB", "4 MiB")
    for saved, gains, falls in (
        ((0.1, 0.3, 0.1), "holds", "holds"),
        ((0.0, 0.01, 0.03), "does not hold", "does not hold"),
    ):
        figures = [("set", size, gain) for size, gain in zip(sizes, saved, strict=True)]
        measured = outcome("injection", *figures)
        assert verdict_of("inject messages into the cache", measured) == gains
        assert verdict_of("inject no more than fits", measured) == falls
    one, two = ("xmm", "1 KiB", 1.3), ("ymm", "1 MiB", 1.05)
    assert verdict_of("tune copies to the machine", outcome("copies", one)) == "holds"
    assert verdict_of("choose the copy by length", outcome("copies", one)) == "does not hold"
    assert verdict_of("choose the copy by length", outcome("copies", one, two)) == "holds"


def test_figures_have_a_line_of_smart_processors_and_of_hbm_in_cache_mode() -> None:
    cards = {card.name: card for card in cards_of({})}
    labels = {line.label for line in cards["movement"].panel.lines}
    assert "smart processors (simulated)" in labels
    modes = cards["hbm-cache-mode"].panel.lines
    assert [len(line.points) for line in modes] == [4, 4]
    # What restates a published figure is not simulated once more beside it.
    kinds = {line.kind for line in cards["ring"].panel.lines}
    assert kinds == {"published"}
    simulated = [line for line in cards["page-faults"].panel.lines if line.kind == "simulated"]
    assert [set(line.points) for line in simulated] == [{"none", "iotlb"}]


def test_without_devices_figures_say_why_and_show_the_others() -> None:
    cards = {card.name: card for card in cards_of({})}
    assert cards["submission"].absent == "Not measured: the report was stopped before it."
    kinds = {line.kind for line in cards["submission"].panel.lines}
    assert kinds == {"published", "simulated"}
    assert cards["submission"].panel.ticks[:3] == ["64 B", "128 B", "256 B"]


def test_ticks_stand_in_order_and_sizes_alone_are_left_out() -> None:
    def panel(*ticks: str) -> Panel:
        return Panel("", "GB/s", [Line("", "measured", dict.fromkeys(ticks, (1.0, 1.0, 1.0)))])

    assert panel("1 MiB", "64 B", "4 KiB").ticks == ["64 B", "4 KiB", "1 MiB"]
    pairs = panel("0 to 15 (hbm)", "0 to 8 (hbm)", "0 to 0 (ddr)")
    assert pairs.ticks == ["0 to 0 (ddr)", "0 to 8 (hbm)", "0 to 15 (hbm)"]
    assert pairs.label_inches(4.0) > 0
    assert panel("copy", "fill").ticks == ["copy", "fill"]
    assert panel("copy", "fill").label_inches(4.0) == 0
    assert len(panel(*(f"{1 << power}" for power in range(15))).labels) < 15
    assert len(panel(*(f"name{chr(97 + index)}" for index in range(15))).labels) == 15


def test_a_guideline_without_a_verdict_says_what_it_takes() -> None:
    for each in guidelines_of(Measured({}, no_queue="there is none", has_tiers=False)):
        assert each.verdict.state == "cannot be told"
        assert each.verdict.reason.startswith("Needs ")


@pytest.mark.usefixtures("undrawn")
def test_a_figure_without_lines_has_no_empty_table() -> None:
    (card,) = [each for each in cards_of({}) if each.name == "latency-shared"]
    assert not card.panel.lines
    text = page_of(
        title="",
        machine={},
        headline="",
        findings=[],
        cards=[card],
        guidelines=[],
        remarks=[("unpinned", "Memory was not locked.")],
    )
    assert card.absent in text
    assert "as a table" not in text
    assert '<p class="unpinned" role="note">' in text


@pytest.mark.usefixtures("fabricated", "undrawn")
def test_an_ended_report_is_written_and_marked_partial(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ended(
        family: str,
        _facts: object,
        _program: str,
        _rounds: int,
        is_stopped: Callable[[], bool],
        _: object,
    ) -> Outcome:
        if not is_stopped():
            signal.raise_signal(signal.SIGINT)
        return Outcome(family, (), (), partial=True)

    monkeypatch.setattr("headrace_lab.families.measure.measure_family", ended)
    page = tmp_path / "report.html"
    result = here("report", "--output", str(page))
    assert result.code == 130
    assert "It is partial" in result.stdout
    assert 'class="partial"' in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("fabricated", "undrawn")
def test_a_report_of_emulated_devices_says_so_first(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queues = tuple(replace(queue, emulated=True) for queue in FACTS.queues)
    monkeypatch.setattr(
        "headrace_lab.commands.report.gather_facts", lambda: replace(FACTS, queues=queues)
    )
    page = tmp_path / "report.html"
    document = json.loads(here("report", "--rounds", "1", "--output", str(page), "--json").stdout)
    assert document["summary"]["emulated"] is True
    verdicts = {each["verdict"] for each in document["results"]["guidelines"]}
    assert "not judged" in verdicts
    assert 'class="emulated"' in page.read_text(encoding="utf-8")
