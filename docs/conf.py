# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings of the manual: `make docs` builds the site and the manual pages."""

import sys
from pathlib import Path

from firsttouch import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "firsttouch"
release = __version__
author = "the firsttouch contributors"
copyright = ""  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "generated", "mathml"]
exclude_patterns = ["extensions", "examples"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
highlight_language = "text"

html_theme = "furo"
html_theme_options = {
    "light_css_variables": {
        "sidebar-caption-font-size": "0.875rem",
        "toc-font-size": "0.875rem",
        "toc-title-font-size": "0.875rem",
    }
}
html_title = "firsttouch"
html_math_renderer = "mathml"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["report.css", "manual.css"]
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Summaries are fetched page by page, which browsers refuse for pages opened from disk.
html_show_search_summary = False

man_make_section_directory = True
man_pages = [
    ("reference/commands", "firsttouch", "validate NUMA hosts, and place memory-bound programs", author, 1),
    ("reference/data-files", "firsttouch-files", "data files of firsttouch", author, 5),
    ("reference/results", "firsttouch-results", "records, reports and exit statuses of firsttouch", author, 5),
    ("reference/environment", "firsttouch-environment", "environment variables of firsttouch", author, 7),
]
