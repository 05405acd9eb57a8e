# SPDX-License-Identifier: Apache-2.0
"""Implementation of the library's commands: tuning, the doctor, DSA configuration, simulation.

Private: the public interface is `headrace`. What measures and compares is in `headrace_lab`.
"""
