# SPDX-License-Identifier: Apache-2.0
"""Runs the command line of an aligner with `firsttouch run`; meta.yaml describes the parameters."""

import shlex

from snakemake.shell import shell

alignments = snakemake.output[0]
command = snakemake.params.command
log = snakemake.log_fmt_shell(stdout=True, stderr=True)

extra = snakemake.params.get("extra", "")
if reference := snakemake.input.get("reference"):
    extra = f"--reference {shlex.quote(reference)} {extra}"
tables = {name: file for name in ("tsv", "multiqc") if (file := snakemake.output.get(name))}
for name, file in tables.items():
    extra = f"--{name} {shlex.quote(file)} {extra}"
if len(snakemake.output) > 1 + len(tables):  # the index
    extra = f"--sort {extra}"

shell("firsttouch run -o {alignments:q} --scratch {snakemake.resources.tmpdir:q} {extra} -- {command} {log}")
