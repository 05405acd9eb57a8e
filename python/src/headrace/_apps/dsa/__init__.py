# SPDX-License-Identifier: Apache-2.0
"""Intel's Data Streaming Accelerator as the operating system shows it, and setting it up.

`facts` are read by `gather`; `configuration` makes a configuration and `apply` loads it. Nothing
here moves bytes: the engine does.
"""
