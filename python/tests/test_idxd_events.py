# SPDX-License-Identifier: Apache-2.0
"""Counters of the driver: the encoding by a recorded folder, the reading by a software event."""

import json
import time
from pathlib import Path

import pytest
from conftest import Here

from headrace import _core
from headrace._apps import idxd_events, top
from headrace._apps.idxd_events import Counters, units

# As the driver of Linux 6 has it (drivers/dma/idxd/perfmon.c).
FORMAT = {
    "event_category": "config:0-3",
    "event": "config:4-31",
    "filter_wq": "config1:0-31",
    "filter_tc": "config1:32-39",
    "filter_pgsz": "config1:40-43",
    "filter_sz": "config1:44-51",
    "filter_eng": "config1:52-59",
}
SOFTWARE = 1
CPU_CLOCK = {"clock": (0, 0, 3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two devices, and one that cannot be understood."""
    for name, cpus in (("dsa0", "0"), ("dsa2", "0,56"), ("dsa4", "x")):
        (tmp_path / name / "format").mkdir(parents=True)
        (tmp_path / name / "type").write_text(f"{SOFTWARE}\n")
        (tmp_path / name / "cpumask").write_text(f"{cpus}\n")
        for field, bits in FORMAT.items():
            (tmp_path / name / "format" / field).write_text(f"{bits}\n")
    return tmp_path


def test_fields_are_encoded_as_sysfs_says(folder: Path) -> None:
    found = units(folder)
    assert [(unit.name, unit.cpu) for unit in found] == [("dsa0", 0), ("dsa2", 0)]
    # perf stat -e dsa0/event_category=0x1,event=0x2,filter_wq=0x3,filter_eng=0x1/
    words = found[0].words(event_category=1, event=2, filter_wq=3, filter_eng=1)
    assert words == [0x21, 3 | 1 << 52, 0]
    with pytest.raises(ValueError, match="no field color"):
        found[0].words(color=1)
    with pytest.raises(ValueError, match="16 does not fit the field event_category"):
        found[0].words(event_category=16)


def test_counts_are_read_and_scaled(folder: Path) -> None:
    with Counters(folder, CPU_CLOCK) as counters:
        if "perf_event_paranoid" in counters.state:
            pytest.skip(counters.state)
        assert counters.state == "dsa0, dsa2"
        before = counters.read()
        time.sleep(0.01)
        after = counters.read()
    assert before.keys() == after.keys() == {"dsa0", "dsa2"}
    for device, values in after.items():
        assert values["clock"] % 3 == 0
        assert values["clock"] > before[device]["clock"]


def test_what_may_not_be_read_says_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(idxd_events, "_open_event", refuse)
    with Counters(folder) as counters:
        assert "sysctl kernel.perf_event_paranoid=0" in counters.state
        assert counters.read() == {}


def test_an_event_that_a_device_refuses_is_named(folder: Path) -> None:
    with Counters(folder, {"unknown": (15, 0xFFFF, 1)}) as counters:
        assert counters.state.startswith("not read: ")
        assert counters.read() == {}


def test_top_and_bench_show_what_the_driver_counts(
    folder: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idxd_events, "_open_event", lambda *_: 0)
    monkeypatch.setattr(Counters, "__exit__", lambda *_: None)
    counts = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(
        Counters, "read", lambda _: {"dsa0": dict.fromkeys(idxd_events.EVENTS, next(counts))}
    )
    monkeypatch.setattr("headrace._cli.top.Counters", lambda: Counters(folder))
    document = json.loads(here("top", "--once", "--json", "--interval", "20ms").stdout)
    (row,) = document["results"]["idxd_devices"]
    assert row["name"] == "dsa0"
    assert row["rates_per_s"]["bytes_written"] > 0
    assert document["results"]["idxd_events"] == "dsa0, dsa2"
    assert "counted by the driver" in here("top", "--once", "--interval", "20ms").stdout
    watch = top.Watch(_core.TELEMETRY_DIRECTORY, Counters(folder))
    assert 'headrace_idxd_device_bytes_read_total{name="dsa0"} ' in top.prometheus_text(
        watch.look()
    )
    monkeypatch.setattr("headrace_lab.commands.bench._family.Counters", lambda: Counters(folder))
    document = json.loads(here("bench", "latency", "--rounds", "1", "--json").stdout)
    assert document["results"]["idxd_counts"]["dsa0"]["bytes_read"] > 0
