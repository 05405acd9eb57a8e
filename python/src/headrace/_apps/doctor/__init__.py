# SPDX-License-Identifier: Apache-2.0
"""Why the DSA of a machine can or cannot be used: the checks and what they find."""
