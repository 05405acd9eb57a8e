# SPDX-License-Identifier: Apache-2.0
"""Optional dependencies: which extra of the Python package installs which package.

pyproject.toml lists the packages of each extra; a test compares the two.
"""

from headrace.errors import UnsupportedError

EXTRAS = {
    "pyarrow": "sql",
    "duckdb": "sql",
    "distributed": "dask",
    "dask": "dask",
    "matplotlib": "lab",
    "jinja2": "lab",
    "tpchgen_cli": "lab",
    "lmcache": "lmcache",
    "vllm": "vllm",
}
"""Extra by the name under which a package is imported."""


def missing_package(tried: str, problem: ModuleNotFoundError) -> UnsupportedError:
    """The error for what `tried` needs: it names the extra to install."""
    package = (problem.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        raise problem
    return UnsupportedError(
        tried,
        f"the Python package {package} is not installed",
        f"run 'pip install \"headrace[{extra}]\"' in a virtual environment with Headrace's wheel",
    )
