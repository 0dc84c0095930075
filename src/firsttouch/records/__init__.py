# SPDX-License-Identifier: Apache-2.0
"""Records: the schema, the store of many records, units, and files that appear by renaming."""
