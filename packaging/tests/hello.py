# SPDX-License-Identifier: Apache-2.0
"""Copies an array by the engine and reads it through the cache, as a new user would."""

import numpy as np

import headrace

source = np.arange(1 << 20, dtype=np.uint64)
with headrace.Cache(capacity="64MiB", placement="local") as cache:
    entry = cache.access(source)
    entry.wait()
    assert int(entry.view().sum()) == int(source.sum())
print(f"headrace {headrace.__version__}")
