# SPDX-License-Identifier: Apache-2.0
"""TPC-H query 6: its table, the query with prefetching, and the comparison with DuckDB."""
