# SPDX-License-Identifier: Apache-2.0
"""The report of a run: index.html for people, summary.md for a ticket, summary.json for machines.

Importing this package does not import matplotlib; :func:`build` does.
"""

from firsttouch.report.assemble import FILES, build
from firsttouch.report.document import DOCUMENT
from firsttouch.report.headlines import Headline, Summary
from firsttouch.report.model import Problem, Reference, References

__all__ = ["DOCUMENT", "FILES", "Headline", "Problem", "Reference", "References", "Summary", "build"]
