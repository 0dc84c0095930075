# SPDX-License-Identifier: Apache-2.0
"""Systems as data: one validated YAML file each, with facts, partitions and references."""
