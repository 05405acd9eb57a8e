# SPDX-License-Identifier: Apache-2.0
"""Inspects and configures the Intel Data Streaming Accelerator.

`configuration` makes a configuration from the facts of the machine and `apply` loads it. Nothing
here moves bytes: the engine does.
"""
