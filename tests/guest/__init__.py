# SPDX-License-Identifier: Apache-2.0
"""Machines in QEMU. A package, so that it has a conftest of its own."""
