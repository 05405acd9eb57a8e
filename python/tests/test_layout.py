# SPDX-License-Identifier: Apache-2.0
"""The package: what may import what, and that nothing goes round in a circle."""

import ast
import graphlib
import importlib
import pkgutil
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import TIME_LIMIT_S

import headrace
import headrace_lab
from headrace._extras import EXTRAS
from headrace_lab.families import FAMILIES

PACKAGE = Path(headrace.__file__).parent
PACKAGES = (PACKAGE, Path(headrace_lab.__file__).parent)


def module_name(path: Path) -> str:
    folder = next(each for each in PACKAGES if path.is_relative_to(each))
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for each in PACKAGES for path in sorted(each.rglob("*.py"))}


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


def test_the_library_needs_no_command_no_application_and_no_laboratory() -> None:
    commands = ("headrace._cli", "headrace._command", "headrace_lab.commands")
    inner = (*commands, "headrace._apps", "headrace_lab")
    for name, named in imports().items():
        if not name.startswith(inner):
            assert not [each for each in named if each.startswith(inner)], name
        if not name.startswith(commands):
            assert not [each for each in named if each.startswith(commands)], name
        if name.startswith("headrace._apps"):
            assert not [each for each in named if each.startswith("headrace_lab")], name


def test_what_lies_in_the_package_is_public_or_says_that_it_is_not() -> None:
    public = {
        path.stem for path in PACKAGE.iterdir() if not path.name.startswith("_") and path.suffix
    }
    assert public - {"py"} == {
        "cache",
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
        "simulator",
        "sql",
        "table",
        "store",
        "telemetry",
        "tune",
    }


@pytest.mark.parametrize(
    "group",
    [
        "headrace._cli",
        "headrace._cli.dsa",
        "headrace._cli.pmem",
        "headrace._cli.sim",
        "headrace_lab.commands.bench",
    ],
)
def test_every_module_of_a_command_is_a_subcommand(group: str) -> None:
    package = importlib.import_module(group)
    commands = package.app if group == "headrace._cli" else package.command
    folders = [*package.__path__]
    if commands.laboratory:
        beside = group.replace("headrace._cli", "headrace_lab.commands")
        folders += importlib.import_module(beside).__path__
    found = {each.name for each in pkgutil.iter_modules(folders) if not each.name.startswith("_")}
    # Families share one module; the laboratory's half of a group is a package of the same name.
    assert found - {"sim"} == commands.summaries.keys() - FAMILIES.keys() - {"sim"}


EXTRA_MODULES = ("pyarrow", "duckdb", "matplotlib", "distributed", "dask", "polars")
# What neither `import headrace` nor a first use of the cache load.
SLOW_MODULES = {*EXTRA_MODULES, "rich", "click", "headrace_lab"}


def run_python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )


def test_importing_headrace_loads_no_optional_package_and_no_command() -> None:
    done = run_python(
        "import headrace, sys; headrace.Cache(capacity='1MiB', placement='local').close();"
        "print(*sys.modules)"
    )
    assert done.returncode == 0, done.stderr
    assert not SLOW_MODULES & set(done.stdout.split())


def test_importing_headrace_takes_at_most_40_ms_more_than_numpy() -> None:
    """Processor time of processes that take turns; asyncio is loaded by who awaits."""

    def seconds(modules: str) -> float:
        code = (
            f"import time; begin = time.process_time(); import {modules}; now = time.process_time()"
        )
        return float(run_python(f"{code}; print(now - begin)").stdout)

    # Other work slows some processes by more than the limit, hardly all that are half of a pair.
    more = [seconds("numpy, headrace") - seconds("numpy") for _ in range(9)]
    assert statistics.median(more) <= 0.04, more
    done = run_python("import headrace, sys; headrace.Engine; print('asyncio' in sys.modules)")
    assert done.stdout.strip() == "False"


WITHOUT_EXTRAS = (
    f"import sys; sys.modules.update(dict.fromkeys({EXTRA_MODULES}));"
    "from headrace._command import main; main()"
)


@pytest.mark.parametrize("command", ["topo", "doctor", "dsa", "run", "tune", "sim", "top", "pmem"])
def test_a_command_of_the_library_needs_no_extra(command: str) -> None:
    done = run_python(WITHOUT_EXTRAS, command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"headrace {command}" in done.stdout


@pytest.mark.parametrize(
    "words, extra",
    [
        (("query", "--help"), "sql"),
        (("sql", "select 1"), "sql"),
        (("sim", "run", "submission", "--machine", "spr-1dsa", "--plot", "p.svg"), "lab"),
    ],
)
def test_a_command_without_its_packages_names_the_extra(words: tuple[str, ...], extra: str) -> None:
    done = run_python(WITHOUT_EXTRAS, *words)
    assert done.returncode == 1
    assert f'pip install "headrace[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_extras_name_the_packages_of_pyproject() -> None:
    document = tomllib.loads((PACKAGE.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    listed = document["project"]["optional-dependencies"]
    for module, extra in EXTRAS.items():
        if module == "dask":  # distributed requires it.
            continue
        name = module.replace("_", "-")
        assert [each for each in listed[extra] if re.match(rf"{name}\b", each)], module


def test_headrace_describes_itself_everywhere_in_the_same_words() -> None:
    root = PACKAGE.parents[2]
    document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    description = document["project"]["description"].lower()
    for name in (
        "README.md",
        "docs/index.md",
        "packaging/debian/control",
    ):
        assert description in (root / name).read_text(encoding="utf-8").lower(), name

    command = importlib.import_module("headrace._cli").app
    assert description in command.help.lower()
    first = importlib.import_module("headrace._cli._first")
    assert description in next(first.lines(headrace.topo(), "")).lower()
