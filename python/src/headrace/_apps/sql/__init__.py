# SPDX-License-Identifier: Apache-2.0
"""SQL queries measured with prefetching, beside DuckDB without it."""
