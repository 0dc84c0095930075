# SPDX-License-Identifier: Apache-2.0
"""ReFrame's configuration: every system of systems/, and of the folders in FIRSTTOUCH_SYSTEMS."""

from pathlib import Path

from firsttouch.benchmarks import reframe_config

site_configuration = reframe_config.site_configuration(Path(__file__).resolve())
