# SPDX-License-Identifier: Apache-2.0
"""Every --json document validates against its schema, and the reference is what the code says."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SCALE_FACTOR, Here
from fabricated import fabricated, tuning
from jsonschema import Draft202012Validator, ValidationError

import headrace
from headrace import _cli, _core
from headrace._apps.tune.tuner import Settings, profile_of
from headrace._cli._app import Group, walk
from headrace._cli._output import schema_of
from headrace._cli._tune_report import results_of, summary_of
from headrace._samples import machine_path
from headrace.pmem import Ring
from headrace_lab.families import FAMILIES

__all__ = ["fabricated"]

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "python/src/headrace/schemas"
QUERY = ["query", "--scale-factor", str(SCALE_FACTOR), "--rounds", "1"]
SQL = ["sql", "--tpch", str(SCALE_FACTOR), "--rounds", "1"]

COMMANDS: dict[str, list[list[str]]] = {
    "topo": [["topo"], ["topo", "--replay", "xeon-max-flat"], ["topo", "--replay", "ddr-cxl"]],
    "doctor": [
        ["doctor", "--replay", path.stem]
        for path in sorted(Path(machine_path("healthy")).parent.glob("*.json"))
    ],
    "dsa-list": [
        ["dsa", "list", "--replay", name] for name in ("healthy", "pasid-off", "threshold-zero")
    ],
    "dsa-configure": [
        ["dsa", "configure", "--replay", "healthy"],
        ["dsa", "configure", "--preset", "low-latency"],
    ],
    "query": [
        QUERY,
        [*QUERY, "--no-compare", "--placement", "0"],
        [*QUERY, "--path", "cpu", "--prefetch", "on", "--simulate", "xeon-max-flat"],
    ],
    "sql": [
        [*SQL, "--query", "6,14"],
        [*SQL, "--query", "6", "--simulate", "xeon-max-flat"],
    ],
    "pmem-check": [
        ["pmem", "check", "--variant", name, "--entries", "1", "--states", "8"]
        for name in ("naive", "naive-missing-flush")
    ],
    "pmem-ring-info": [["pmem", "ring", "info", "ring.pmem"]],
    "store-check": [["store", "check", "blocks"]],
    "store-serve": [],  # test_store_shared.py: it runs until a signal.
    "sim-list": [["sim", "list"]],
    "sim-run": [["sim", "run", "submission"], ["sim", "run", "ddr-to-hbm"]],
    "sim-validate": [["sim", "validate"]],
    "sim-advise": [
        ["sim", "advise", "--machine", "xeon-max-flat", "--bytes", "1GiB"],
    ],
    "sim-replay": [["sim", "replay", "made.trace", "--machine", "spr-1dsa"]],
    "machine-list": [["machine", "list"]],
    "machine-show": [["machine", "show", "xeon-max-flat"], ["machine", "show", "ddr-optane"]],
    "report": [["report", "--rounds", "1", "--output", "report.html"]],
    "top": [["top", "--once", "--interval", "10ms"]],
    "tune": [],  # Below: it takes minutes.
    "bench-family": [["bench", name] for name in FAMILIES],
    **{
        f"bench-{name}": [["bench", name]]
        for name in (
            "cache",
            "copy",
            "emulator",
            "engine",
            "faults",
            "injection",
            "message",
            "pmem",
            "store",
        )
    },
}


def test_every_command_with_documents_has_a_schema_and_is_tested() -> None:
    with_json = {
        "bench-family" if path[-1] in FAMILIES else "-".join(path[1:])
        for path, found, _ in walk(_cli.app)
        if not isinstance(found, Group) and any(each.name == "as_json" for each in found.params)
    }
    assert with_json == {path.stem for path in SCHEMAS.glob("*.json")} == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_schema_is_one_and_describes_what_one_would_quote(name: str) -> None:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    for field, described in schema["properties"]["summary"]["properties"].items():
        assert described["description"], field


@pytest.mark.usefixtures("fabricated")
@pytest.mark.parametrize(
    "name, words", [(name, words) for name, lines in COMMANDS.items() for words in lines]
)
def test_a_document_validates(
    name: str,
    words: list[str],
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    data_directory: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(data_directory))
    monkeypatch.chdir(tmp_path)
    # The pictures of a report take seconds, and are none of its document.
    monkeypatch.setattr("headrace_lab.report.page._drawings", lambda cards: [""] * len(cards))
    Ring("ring.pmem", capacity="64KiB")
    if name == "sim-replay":
        headrace.start_trace("made.trace")
        with headrace.Engine() as engine:
            engine.copy(source=bytes(65536), target=bytearray(65536))
        headrace.stop_trace()
    with headrace.Store([headrace.Tier("1MiB", path="blocks")]) as store:
        store.put("a", b"hello")
    document = json.loads(here(*words, "--json").stdout)
    Draft202012Validator(schema_of(name)).validate(document)
    assert document["schema"]["name"] == f"headrace-{name}".removesuffix("-info")


def test_the_document_of_a_tuning_validates() -> None:
    profile = json.loads(profile_of(tuning()))
    document = {
        "schema": {"name": "headrace-tune", "version": 1},
        "machine": headrace.topo().document,
        "results": results_of(tuning(), Settings(), profile, "copy.json"),
        "summary": summary_of(profile),
    }
    Draft202012Validator(schema_of("tune")).validate(json.loads(json.dumps(document)))


def test_the_table_of_a_profile_validates(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    profile = json.loads(_core.empty_copy_profile())
    variant = (*_core.copy_variants(4097), None)[0]
    # The second class is of a profile that knew no speed of cached bytes.
    profile["classes"] = [
        {"bytes_max": 8192, "variant": variant, "measured": {"bytes_per_s_hot": 2e9, "ratio": 1.5}},
        {"bytes_max": 16384, "variant": variant},
    ]
    path.write_text(json.dumps(profile))
    result = here("tune", "--table", "--json", "--output", str(path))
    document = json.loads(result.stdout)
    Draft202012Validator(schema_of("tune")).validate(document)
    rows = {row["bytes_max"]: row for row in document["results"]["table"]}
    assert list(rows) == [1 << bits for bits in range(6, 27)]
    assert rows[8192]["asterope_bytes_per_s"] == 7.17e9
    assert rows[8192]["gain"] == (1.5 if variant else None)
    assert rows[16384]["variant"] == (variant or "libc")
    assert rows[128]["variant"] == "libc"
    assert {key for key, row in rows.items() if row["asterope_absent"]} == {128}
    printed = here("tune", "--table", "--output", str(path)).stdout
    assert "Xeon Gold 5218" in printed
    assert "Asterope's copy up to 128 B cannot be generated" in " ".join(printed.split())
    assert here("tune", "--table", "--output", str(tmp_path / "none.json")).code == 1


def test_a_schema_refuses_what_it_does_not_name(here: Here) -> None:
    document = json.loads(here("topo", "--json").stdout)
    validator = Draft202012Validator(schema_of("topo"))
    spoils: list[dict[str, Any]] = [
        {"summary": {**document["summary"], "odd": 1}},
        {"summary": {}},
        {"odd": 1},
    ]
    for spoil in spoils:
        with pytest.raises(ValidationError):
            validator.validate(document | spoil)


def test_the_reference_of_the_command_is_what_the_generator_writes() -> None:
    script = _script("command_reference")
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page(text) == text, "run: .venv/bin/python scripts/command_reference.py"
    assert set(script.BLOCK.findall(text)) == script.commands().keys()


def _script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
