# SPDX-License-Identifier: Apache-2.0
"""Records: the schema, the store of many records, and files that appear by renaming."""
