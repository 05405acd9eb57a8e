# SPDX-License-Identifier: Apache-2.0
"""Headrace: a prefetching cache over heterogeneous memory."""

from importlib.metadata import version as _version

from headrace.errors import Error

__all__ = ["Error", "__version__"]

__version__ = _version("headrace")
