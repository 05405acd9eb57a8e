# SPDX-License-Identifier: Apache-2.0
"""Measures SQL queries with prefetching, compared with DuckDB without it."""
