# SPDX-License-Identifier: Apache-2.0
"""One page of a machine: its figures beside published and simulated ones, and what they mean.

`cards` says which figures there are, `guidelines` what the papers advise and whether it holds here,
`page` writes the page, `compare` tells two reports apart. Nothing here measures.
"""
