# SPDX-License-Identifier: Apache-2.0
"""Writes the declared facts of machines for the doctor, from machines.toml.

The build installs them as samples, and the tests read those: into the record of the same name in
the folder of samples, else as a record with these facts alone in its subfolder `doctor`.

Usage: make_doctor_machines.py FOLDER
"""

import copy
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).parent.parent / "python/src/headrace/_apps/doctor/machines.toml"
TOLD: dict[str, Any] = tomllib.loads(MACHINES.read_text(encoding="utf-8"))


def put(facts: Any, place: str, value: object) -> None:  # noqa: ANN401 - JSON.
    """Replace the fact at a path such as "devices.*.state"; None removes it."""
    step, _, rest = place.partition(".")
    for key in range(len(facts)) if step == "*" else [int(step) if step.isdigit() else step]:
        if rest:
            put(facts[key], rest, value)
        elif value is None:
            facts.pop(key, None)
        else:
            facts[key] = copy.deepcopy(value)


def change(facts: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Apply the changes of a machine, or of a device, first those that it shares with others."""
    for name in told.get("like", ()):
        change(facts, TOLD["changes"][name])
    if "devices" in told:
        facts["devices"] = [device(**each) for each in told["devices"]]
    for place in told.get("without", ()):
        put(facts, place, None)
    for place, value in told.get("with", {}).items():
        put(facts, place, value)
    return facts


def device(number: int, bus: str, **told: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON.
    """Make a device: the healthy machine's with changes and renamed."""
    text = json.dumps(change(copy.deepcopy(TOLD["healthy"]), told)["devices"][0])
    for old in ("dsa0", "wq0.", "group0.", "engine0."):
        text = text.replace(old, old.replace("0", str(number)))
    made: dict[str, Any] = json.loads(text.replace("0000:6a", f"0000:{bus}"))
    return made


def main() -> None:
    samples = Path(sys.argv[1])
    (samples / "doctor").mkdir(parents=True, exist_ok=True)
    for machine in TOLD["machine"]:
        record: dict[str, Any] = {
            "schema": {"name": "headrace-machine-record", "version": 1},
            "origin": f"Declared, not recorded: {machine['origin']}",
        }
        path = samples / f"{machine['name']}.json"
        if path.exists():
            record = json.loads(path.read_text(encoding="utf-8"))
        else:
            path = samples / "doctor" / path.name
        record["facts"] = change(copy.deepcopy(TOLD["healthy"]), machine)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
