# SPDX-License-Identifier: Apache-2.0
"""Test data and helpers that several suites share; tests/conftest.py holds the fixtures.

- `host_records`: records of made-up hosts of 1 to 8 NUMA nodes, as the checks write them, and reports of them
- `fastq_files`: FASTQ as hypothesis strategies, packed files, and what a feeder writes into pipes
- `genomes`: reads of a made-up or real genome as the aligners get them, and scenarios that fit every host
- `native_probe`: the probe, built from the checkout
- `http_server`: a real HTTP server that misbehaves on demand
- `stored_roots`: stored file-system roots of made-up hosts
- `topologies`: the XML of made-up hosts of many shapes, and of hosts of these shapes in hwloc's test corpus
- `processes`: shell scripts in place of programs, waiting for a condition, runs of ReFrame
"""
