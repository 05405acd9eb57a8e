# SPDX-License-Identifier: Apache-2.0
"""Tuning copies, fills and comparisons to this machine."""
