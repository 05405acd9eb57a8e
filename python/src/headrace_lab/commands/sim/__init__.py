# SPDX-License-Identifier: Apache-2.0
"""Subcommands of ``headrace sim`` that measure, or compare with published figures."""
