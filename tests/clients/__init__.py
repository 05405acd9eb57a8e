# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs on emulated devices. A package, so that it has a conftest of its own."""
