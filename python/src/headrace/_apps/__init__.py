# SPDX-License-Identifier: Apache-2.0
"""Implementation of the commands: TPC-H, tuning, the doctor, DSA configuration.

Private: the public interface is `headrace`.
"""
