# SPDX-License-Identifier: Apache-2.0
"""One page about a machine: its figures beside published and simulated ones, and guidelines.

`cards` defines the figures, `guidelines` judges the advice of papers, `page` writes the page,
`compare` compares two reports. Nothing here measures.
"""
