# SPDX-License-Identifier: Apache-2.0
"""The machine as a value: discovered, recorded and replayed."""

import dataclasses
import os
from pathlib import Path

import pytest

import headrace


def test_this_machine_has_a_node_with_the_processors_of_this_process() -> None:
    machine = headrace.topo()
    cpus = {cpu for node in machine.nodes for cpu in node.cpus}
    assert cpus == os.sched_getaffinity(0)
    assert machine.node(machine.nodes[0].id) is machine.nodes[0]
    assert machine.node(10**6) is None


def test_a_machine_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        headrace.topo().origin = "elsewhere"  # type: ignore[misc]


def test_a_recorded_machine_is_replayed_with_the_same_nodes(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    recorded = headrace.record(path)
    replayed = headrace.replay(path)
    assert [node.id for node in replayed.nodes] == [node.id for node in recorded.nodes]
    assert [node.tier for node in replayed.nodes] == [node.tier for node in recorded.nodes]
    assert replayed.has_faster_tier() == recorded.has_faster_tier()


def test_a_missing_record_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match=r"none\.json"):
        headrace.replay(tmp_path / "none.json")


def test_a_file_that_is_no_record_is_corrupt_data(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text("not a machine")
    with pytest.raises(headrace.CorruptDataError, match=r"odd\.json"):
        headrace.replay(path)


def test_a_faster_node_is_one_of_the_machine() -> None:
    machine = headrace.topo()
    for node in machine.nodes:
        for faster in machine.faster_nodes(node.id):
            assert machine.node(faster) is not None
