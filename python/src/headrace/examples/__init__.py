# SPDX-License-Identifier: Apache-2.0
"""Programs to try and to read: ``python -m headrace.examples.NAME``."""
