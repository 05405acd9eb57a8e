# SPDX-License-Identifier: Apache-2.0
"""The package: what may import what, and that nothing goes round in a circle."""

import ast
import graphlib
import importlib
import pkgutil
from pathlib import Path

import pytest

import headrace
from headrace._apps.families import FAMILIES

PACKAGE = Path(headrace.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports() -> dict[str, set[str]]:
    """Of each module the modules of the package that it names, also only for types or later."""
    known = modules()
    named: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                of_node = {f"{node.module}.{alias.name}" for alias in node.names} & known.keys()
                found = of_node or {node.module}
            else:
                continue
            named[name] |= (found & known.keys()) - {name}
    # The names of the package itself are loaded from its modules when they are asked for.
    named["headrace"] = set()
    return named


def test_imports_go_in_no_circle() -> None:
    tuple(graphlib.TopologicalSorter(imports()).static_order())


def test_the_library_needs_no_command_and_no_application() -> None:
    inner = ("headrace._cli", "headrace._apps", "headrace._command")
    for name, named in imports().items():
        if not name.startswith(inner):
            assert not [each for each in named if each.startswith(inner)], name
        if name.startswith("headrace._apps"):
            assert not [each for each in named if each.startswith("headrace._cli")], name


def test_what_lies_in_the_package_is_public_or_says_that_it_is_not() -> None:
    public = {
        path.stem for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.suffix
    }
    assert public - {"py"} == {
        "cache",
        "channel",
        "dask",
        "engine",
        "engine_statistics",
        "errors",
        "frames",
        "job",
        "machine",
        "operation",
        "pmem",
        "queue",
        "sql",
        "table",
        "store",
        "telemetry",
    }


@pytest.mark.parametrize("group", ["_cli", "_cli.bench", "_cli.dsa", "_cli.pmem", "_cli.sim"])
def test_every_module_of_a_command_is_a_subcommand(group: str) -> None:
    package = importlib.import_module(f"headrace.{group}")
    found = {each.name for each in pkgutil.iter_modules(package.__path__)}
    commands = package.app if group == "_cli" else package.command
    summaries = commands.summaries.keys() - FAMILIES.keys()  # They share one module.
    assert {name for name in found if not name.startswith("_")} == summaries
