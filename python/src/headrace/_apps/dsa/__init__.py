# SPDX-License-Identifier: Apache-2.0
"""Inspects and configures the Intel Data Streaming Accelerator.

`gather` reads `facts` from the operating system; `configuration` makes a configuration and `apply`
loads it. Nothing here moves bytes: the engine does.
"""
