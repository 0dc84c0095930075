# SPDX-License-Identifier: Apache-2.0
"""Running programs: one process runner, placement and its verification, the host lock, backends."""
