# SPDX-License-Identifier: Apache-2.0
"""Intel's Data Streaming Accelerator as the operating system shows it.

What is there (`facts`, read by `gather`), why it can or cannot be used (`diagnosis`), and how it is
set up (`configuration`, `apply`). Nothing here moves bytes: that is the engine's.
"""
