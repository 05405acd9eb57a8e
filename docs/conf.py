# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration of the manual; scripts/docs runs it with warnings as errors."""

from pathlib import Path

project = "Headrace"
author = "The Headrace authors"
copyright = "The Headrace authors, Apache-2.0"  # noqa: A001  (Sphinx wants this name)
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # It makes a dash of the two hyphens before an option.
napoleon_use_ivar = True  # Attributes are described once, where the class is.
breathe_projects = {"headrace": str(Path(__file__).parent.parent / "build" / "docs" / "xml")}
breathe_default_project = "headrace"
html_theme = "furo"
html_title = "Headrace"
html_static_path = ["static"]
html_css_files = ["narrow.css"]
html_copy_source = False
