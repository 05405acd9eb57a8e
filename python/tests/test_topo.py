# SPDX-License-Identifier: Apache-2.0
"""What ``headrace topo`` and ``headrace`` alone show of the recorded machines."""

import io
import json
from pathlib import Path

import pytest
from conftest import Here

from headrace._cli import _first
from headrace._cli._report import Report
from headrace._cli._topo_report import cpu_list, print_machine
from headrace.errors import CorruptDataError, NotFoundError
from headrace.machine import replay

MACHINES = Path(__file__).resolve().parents[2] / "tests" / "machines"


def shown(name: str, width: int = 160) -> str:
    stream = io.StringIO()
    print_machine(Report(stream, width), replay(MACHINES / f"{name}.json").document)
    return stream.getvalue()


def row(text: str, *beginning: str) -> list[str]:
    """The words of the first line that begins with these."""
    rows = (line.split() for line in text.splitlines())
    return next(words for words in rows if words[: len(beginning)] == list(beginning))


def test_processors_are_written_as_the_kernel_does() -> None:
    assert cpu_list([]) == ""
    assert cpu_list([3]) == "3"
    assert cpu_list([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_flat_mode_shows_each_tier_with_its_figures_and_the_devices() -> None:
    text = shown("xeon-max-flat")
    figures = ["declared", "64", "GiB", "84-95", "1", "52.9", "110", "itself"]
    assert row(text, "7", "ddr")[2:10] == figures
    figures = ["declared", "16", "GiB", "none", "1", "107.4", "135", "node", "7"]
    assert row(text, "15", "hbm")[2:11] == figures
    assert "for processors of node 6: 14, 12, 13, 15" in text
    assert "wq14.0: shared, enabled, user, 128 entries, up to 2 GiB" in text
    assert row(text, "0", "52.9")[9] == "107.4"
    assert row(text, "0", "10")[9] == "13"


def test_cache_mode_shows_the_memory_side_cache() -> None:
    text = shown("xeon-max-cache")
    assert "side cache" in text
    assert row(text, "0", "ddr")[-3:] == ["16", "GiB", "none"]


def test_a_bare_node_shows_what_is_unknown_and_why() -> None:
    text = shown("bare-node")
    assert row(text, "0", "ddr") == ["0", "ddr", "inferred", "4", "GiB", "0-3", "?", "none"]
    assert "Bandwidth in" not in text
    assert "Node 0 is called ddr because" in text
    assert "unknown: the record does not say" in text


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_machine_is_shown_in_plain_ascii(here: Here, path: Path) -> None:
    result = here("topo", "--replay", str(path))
    assert result.code == 0
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout


def test_the_json_has_machine_results_and_summary(here: Here) -> None:
    path = MACHINES / "xeon-max-flat.json"
    result = here("topo", "--json", "--replay", str(path))
    document = json.loads(result.stdout)
    assert document["schema"] == {"name": "headrace-topo", "version": 1}
    assert document["machine"]["schema"]["name"] == "headrace-machine"
    assert document["summary"] == {
        "node_count": 16,
        "cpu_count": 96,
        "tiers": "ddr,hbm",
        "has_faster_tier": True,
        "dsa_device_count": 8,
    }


def test_this_machine_can_be_recorded_and_shown_again(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "this.json"
    recorded = here("topo", "--record", str(path))
    replayed = here("topo", "--replay", str(path))
    assert recorded.code == replayed.code == 0

    # The third line is the origin.
    def below_the_origin(text: str) -> list[str]:
        return text.splitlines()[3:]

    assert below_the_origin(recorded.stdout) == below_the_origin(replayed.stdout)


def test_record_and_replay_exclude_each_other(here: Here, tmp_path: Path) -> None:
    arguments = ["topo", "--record", str(tmp_path / "a"), "--replay", str(tmp_path / "b")]
    assert here(*arguments).code == 2
    assert not list(tmp_path.iterdir())


def test_records_that_are_missing_or_damaged_are_errors_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        replay(tmp_path / "missing")
    damaged = tmp_path / "damaged"
    damaged.write_text("{")
    with pytest.raises(CorruptDataError, match="damaged"):
        replay(damaged)


def test_work_queues_that_are_not_set_up_are_counted() -> None:
    document = replay(MACHINES / "xeon-max-flat.json").document
    queues = document["dsa_devices"][0]["queues"]
    empty = queues[0] | {"entry_count": 0, "state": "disabled"}
    queues += [empty | {"device_name": f"wq0.{number}"} for number in (1, 2)]
    stream = io.StringIO()
    print_machine(Report(stream, 160), document)
    assert "up to 2 GiB; 2 more WQs without entries" in " ".join(stream.getvalue().split())
    assert "wq0.1" not in stream.getvalue()


def test_the_command_alone_suggests_only_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replay(MACHINES / "bare-node.json")
    assert "headrace query" in "".join(_first.lines(machine, ""))
    monkeypatch.setattr(_first, "find_spec", lambda _: None)
    lines = list(_first.lines(machine, ""))
    assert len(lines) == 10
    assert "headrace query" not in "".join(lines)
