# SPDX-License-Identifier: Apache-2.0
"""What stores of blocks lose or falsify under faults: ours, and others that are installed."""
