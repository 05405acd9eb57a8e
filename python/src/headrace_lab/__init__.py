# SPDX-License-Identifier: Apache-2.0
"""The laboratory: what measures Headrace and machines, compares, predicts, fits and demonstrates.

Private: it serves the commands ``bench``, ``query``, ``sql``, ``report``, ``sim advise`` and ``sim
validate``. Programs import `headrace`, which imports nothing from here; only commands do.
"""
