# SPDX-License-Identifier: Apache-2.0
"""How often one host alone is called low: good hosts, and hosts that lost a quarter of their bandwidth.

Method. No data set is shipped: each is given by its path. Each of its hosts is judged alone, without references.

FILE.csv a host per row: cpu_model, sockets, theory_gbs (by its modules), bwmem_read_gbs_all, the reads of all PUs
(GB/s). The share that the processors' files state for its model is ignored: the median of the other models is
used. Then a quarter of the bandwidth is taken off. In a second series the modules are unknown. FOLDER hosts of the
form cardiff (see real_fleets.py): hosts with fewer modules than most are faulty.

*Blamed* are good hosts that are called low, *answered* those that are as expected or low.

Without a data set, one thread of the probe is compared with one of lmbench's bw_mem on this host, in alternating
runs: the median and the range of the ratios of the best samples of each round, for reads and for copies.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import real_fleets
from msgspec.structs import replace
from tabulate import tabulate

from firsttouch.benchmarks.lmbench import program
from firsttouch.errors import BadInput, FirstTouchError
from firsttouch.host.topology import probe_program
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table
from firsttouch.records.drift import latest
from firsttouch.records.schema import Record
from firsttouch.systems import expectation, processors
from firsttouch.systems.definition import Undescribed
from firsttouch.systems.expectation import answer

#: The part of the bandwidth that a fault leaves.
LEFT = 0.75
#: bw_mem's and the probe's array, past the caches of a slice.
ARRAY_MIB = 256


def answer_of(records: Sequence[Record]) -> str:
    """Return the answer for the only host of *records*."""
    samples = samples_table.of_records(records, records[0].system)
    findings = judged(samples, Undescribed(records[0].system), configurations=lambda: latest(records))
    return answer(findings.verdict(findings.hosts[0]).expected)


def records_of(row: dict[str, str], left: float, *, modules: bool) -> list[Record]:
    """Return the records of a host of a table with what is *left* of its bandwidth; *modules* could be read."""
    sockets, system = int(row["sockets"]), "published"

    def record(
        check: str, metric: str, unit: str, value: float, better: str = "higher", **parameters: object
    ) -> Record:
        what = (check, metric, unit, better, (value,))
        return Record(*what, parameters=parameters, host=row["instance"], system=system)

    records = [record("configuration", "settings", "1", 1.0, "neither", settings={"cpu.model": row["cpu_model"]})]
    if modules:
        theory = float(row["theory_gbs"]) / sockets
        where = {"source": "SMBIOS", "packages": sockets, "banks": sockets}
        records.append(record("topology", "theoretical_bandwidth", "GB/s", theory, "neither", **where))
    rate = left * float(row["bwmem_read_gbs_all"]) / sockets
    for bank in range(sockets):
        case = {"program": "bw_mem", "pu_nodes": [bank], "bank": bank, "load": "local", "read_share": 1}
        records.append(record("loaded_latency", "peak_bandwidth", "GB/s", rate, threads=16, **case))
    return records


def without(model: str) -> list[processors.Family]:
    """Return the families of processors without what was measured of a *model*."""
    processor = processors.find(model)
    return [
        replace(
            family,
            models=tuple(
                replace(m, read_share=None) if processor and m is processor.model else m for m in family.models
            ),
        )
        for family in processors.families()
    ]


def published(file: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a series of answers for good hosts, and for the same hosts with a fault."""
    rows = list(csv.DictReader(file.open(encoding="utf-8", newline="")))
    shares = {row["instance"]: float(row["bwmem_read_gbs_all"]) / float(row["theory_gbs"]) for row in rows}
    for name, modules in (("modules read", True), ("modules unknown", False)):
        answers: tuple[list[str], list[str]] = ([], [])
        for row in rows:
            others = statistics.median(shares[r["instance"]] for r in rows if r["cpu_model"] != row["cpu_model"])
            families = tuple(without(row["cpu_model"]))
            with (
                mock.patch.object(processors, "families", lambda families=families: families),
                mock.patch.object(expectation, "READ_SHARE", others),
            ):
                for of_kind, left in zip(answers, (1.0, LEFT), strict=True):
                    of_kind.append(answer_of(records_of(row, left, modules=modules)))
        yield f"{file.stem}, {name}", *answers


def cardiff(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the answers for the good and the faulty hosts of a folder."""
    for scenario in real_fleets.scenarios(folder):
        faulty = {fault.host for fault in scenario.faults}
        answers: tuple[list[str], list[str]] = ([], [])
        for host in sorted({m.host for m in scenario.measurements}):
            records = [m.record("fleet") for m in scenario.measurements if m.host == host]
            answers[host in faulty].append(answer_of(records))
        yield f"{folder.name}, {scenario.name}", *answers


def _best(argv: Sequence[str]) -> float:
    """Return the rate (GB/s) that bw_mem prints on standard error."""
    return float(subprocess.run(argv, capture_output=True, text=True, check=True).stderr.split()[-1]) / 1000


def ratios(rounds: int, seed: int) -> list[tuple[str, str]]:
    """Return the rates of one thread of the probe as a share of bw_mem's reads: the median, and the range."""
    bw_mem = str(Path(program()).with_name("bw_mem"))
    probe = [str(probe_program()), "--quiet"]
    kinds = {
        "reads": ["loaded-latency", "--rates=1", "--read-shares=1", "--loads=local"],
        "copies": ["bandwidth", "--kernels=copy", "--stores=both", f"--array-bytes={ARRAY_MIB // 2}MiB"],
    }
    rates: dict[str, list[float]] = {}
    draw = random.Random(seed)  # noqa: S311
    for _ in range(rounds):
        best = {}
        for kind in draw.sample(["bw_mem", *kinds], k=len(kinds) + 1):
            if kind == "bw_mem":
                argv = ["taskset", "-c", "1", bw_mem, "-P", "1", "-N", "5", f"{ARRAY_MIB}m", "rd"]
                best[kind] = max(_best(argv) for _ in range(3))
                continue
            bound = [] if kind == "reads" else ["taskset", "-c", "1"]
            argv = [*bound, probe[0], *kinds[kind], *probe[1:]]
            text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            for result in json.loads(text)["results"]:
                if (
                    result["unit"] == "GB/s"
                    and result.get("rate", 1) == 1
                    and result["metric"] != "peak_bandwidth"
                ):
                    name = f"{kind}, {result['stores']} stores" if kind == "copies" else kind
                    best[name] = max(best.get(name, 0.0), *result["samples"])
        for name, rate in best.items():
            rates.setdefault(name, []).append(rate / best["bw_mem"])
    return [
        (name, f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        for name, values in rates.items()
        if name != "bw_mem"
    ]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, metavar="PATH", help="a data set")
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison of programs (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of programs (default: 1)")
    args = parser.parse_args()
    try:
        if not args.data:
            print(tabulate(ratios(args.rounds, args.seed), ("one thread of the probe", "times bw_mem's reads")))
            return 0
        rows = []
        for path in args.data:
            for name, good, faulty in cardiff(path) if path.is_dir() else published(path):
                answered = sum(a != "unknown" for a in good)
                row = (name, len(good), good.count("low"), answered, len(faulty), faulty.count("low"))
                rows.append(row)
        heads = ("data set", "good hosts", "blamed", "answered", "faulty", "called low")
        print(tabulate(rows, heads))
    except (BadInput, FirstTouchError) as error:
        print(f"one_host: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
