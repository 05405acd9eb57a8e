# SPDX-License-Identifier: Apache-2.0
"""Tunes copies, fills and comparisons for this machine."""
