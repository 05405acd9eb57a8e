# SPDX-License-Identifier: Apache-2.0
"""Subcommands of ``headrace`` that belong to the laboratory; `headrace._cli` lists them."""
