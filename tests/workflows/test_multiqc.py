# SPDX-License-Identifier: Apache-2.0
"""Reports of one host and of a fleet, and a run, as sections of a report of the real MultiQC."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from factories.fleet_records import records_by_host
from factories.host_records import Machine
from firsttouch.execution import energy
from firsttouch.judge import samples_table
from firsttouch.judge.judging import Undescribed, judged
from firsttouch.report import multiqc as sections
from firsttouch.report.fleet import fleet_pages
from firsttouch.report.pages import build


def test_multiqc_shows_hosts_and_scenarios(multiqc: Path, tmp_path: Path) -> None:
    machine = Machine(1, 4)
    (tmp_path / "in" / "host").mkdir(parents=True)
    (tmp_path / "in" / "fleet").mkdir()
    build([*machine.everything(), *machine.placement("bowtie2", "GCAT")], tmp_path / "in" / "host")
    records = [r for host_records in records_by_host(hosts=8).values() for r in host_records]
    fleet_pages.build([judged(samples_table.of_records(records), Undescribed("s"))], tmp_path / "in" / "fleet")
    runs = machine.scaling("hisat2", "GCAT")[:2]
    used = [{"joules": 250.0, "source": "powercap", "seconds": 3.0}]
    runs += [energy_of for run in runs for energy_of in energy.records(run, used)]
    for name, section in sections.of_records(runs).items():
        (tmp_path / "in" / f"run_{name}").write_text(section)
    for sample, seconds in (("patient1", 21.5), ("patient2", 22.5)):
        run = {"seconds": seconds, "scenario": {"name": "2Inst_Interleave"}, "placement": "verified"}
        run["energy"] = {"joules": 375.25, "joules_per_million_reads": 12.5}
        (tmp_path / "in" / f"{sample}_mqc.json").write_text(sections.of_run(sample, run))
    argv = [multiqc, "--no-ansi", "--strict", "-o", tmp_path / "out", tmp_path / "in"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "out" / "multiqc_data" / "multiqc_data.json").read_text())
    text = json.dumps(data)
    for name in (
        "firsttouch_hosts",
        "firsttouch_scenarios",
        "n007",
        machine.host,
        "bowtie2, GCAT",
        "hisat2, GCAT",
        "firsttouch_energy",
    ):
        assert name in text, name
    general = json.dumps(data["report_general_stats_data"])
    for value in ("patient1", "patient2", "21.5", "22.5", "verified", "375.25", "12.5"):
        assert value in general, value
    page = (tmp_path / "out" / "multiqc_report.html").read_text()
    assert "firsttouch: time by placement scenario" in page
