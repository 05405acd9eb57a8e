# SPDX-License-Identifier: Apache-2.0
"""Compares the simulator with published and measured figures, and draws advice from it."""
