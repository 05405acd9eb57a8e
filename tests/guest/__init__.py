# SPDX-License-Identifier: Apache-2.0
"""Machines of many nodes in an emulator, booted with a kernel of the distribution, for tests.

`kernel` fetches the kernel, `image` packs programs into a memory image, `machine` describes the
machines, `boot` runs one and says how it ended, `scenarios` says what is run where. Not for timing:
every node of such a machine is equally fast.
"""
