# SPDX-License-Identifier: Apache-2.0
"""Aligners as data, FASTQ, feeding reads, SAM, and running an aligner under a scenario."""
