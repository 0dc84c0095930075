# SPDX-License-Identifier: Apache-2.0
"""Datasets: references and reads, described by one TOML file each, fetched, checked and kept in a store."""
