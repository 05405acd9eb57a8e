# SPDX-License-Identifier: Apache-2.0
"""Predicts times on machines described in a file, and compares them with published ones."""
