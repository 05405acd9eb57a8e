# SPDX-License-Identifier: Apache-2.0
"""What stands behind the commands: TPC-H, tuning, the doctor, DSA configuration.

Not the public interface: that is `headrace` itself.
"""
