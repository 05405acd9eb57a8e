# SPDX-License-Identifier: Apache-2.0
"""What the commands of the simulator share: sweeps, plots, and figures with their provenance."""
