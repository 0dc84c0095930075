# SPDX-License-Identifier: Apache-2.0
"""Cost of a large fleet's report: time and memory of reading, judging and reporting, and the page's first view.

Method. Records of HOSTS hosts x METRICS metrics are simulated (seeded) and put into a store, one file per host, as
hosts write them. The errors of repetitions are drawn from the published tables (median 4.9 %, up to 26 %). Every
other metric has the shape of real repetitions by the probe on a busy virtual machine (bench/data/repetitions.csv),
the others a normal one, and one repetition in a hundred is disturbed. One
host in a hundred has a bank that lacks a memory channel (all metrics of the bank lose a quarter), one in a
thousand loses 15 % everywhere, and one in a thousand did not finish. Two processes are measured, with the peak
memory that Linux reports:

- stages: reading, judging and reporting one after the other, as in `firsttouch report`
- command: all of `firsttouch report STORE -o OUT`, including the start of Python

With --months, the store has monthly sessions of three repetitions instead. The command reports the last session
(--max-age), and then all of them.

The first view is Chromium's first contentful paint of the page, loaded from this host: the median of VIEWS loads.
"""

from __future__ import annotations

import argparse
import csv
import functools
import http.server
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl

from firsttouch.records import schema, store
from firsttouch.records.schema import Record

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "studies" / "published" / "lenis2017_execution_times.csv"
REPEATED = Path(__file__).with_name("data") / "repetitions.csv"
#: The deviation between good hosts, the share of disturbed repetitions, and their losses.
SPREAD, DISTURBED, BY = 0.005, 0.01, (0.05, 0.30)
HOSTS, METRICS, VIEWS = 10_000, 1_000, 5
NODES = 8
PAGE_MOST = 15e6
_STARTED = 1_767_225_600  # 2026-01-01
#: Repetitions of a session and hosts of a file, in a store with a history.
REPETITIONS, _BLOCK = 3, 500


def errors() -> list[float]:
    """Return the published errors as fractions."""
    with PUBLISHED.open(encoding="utf-8") as lines:
        return [float(row["error_pct"]) / 100 for row in csv.DictReader(lines) if row["error_pct"]]


def shapes() -> list[np.ndarray]:
    """Return series of real repetitions: deviations from the median in standard deviations, negative if worse."""
    series: dict[tuple[str, ...], list[float]] = {}
    with REPEATED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            series.setdefault((row["better"], row["metric"], row["case"]), []).append(float(row["value"]))
    signs = [1 if better == "higher" else -1 for better, *_ in series]
    return [
        sign * (np.array(values) - statistics.median(values)) / statistics.stdev(values)
        for sign, values in zip(signs, series.values(), strict=True)
    ]


def cases(count: int) -> list[Record]:
    """Return *count* records, one per case: bandwidth and latency of a host with 8 NUMA nodes."""
    records = []
    pairs = [{"program": "probe", "pu_nodes": [a], "bank": b} for a in range(NODES) for b in range(NODES)]
    for pair in pairs:
        for kernel in ("copy", "scale", "add", "triad"):
            records.append(
                _record("bandwidth", f"{kernel}_bandwidth", "GB/s", "higher", {**pair, "kernel": kernel})
            )
    for size in (1 << p for p in range(12, 31)):
        for pair in pairs:
            records.append(_record("latency", "random_latency", "ns", "lower", {**pair, "size_bytes": size}))
    if count > len(records):
        raise SystemExit(f"--metrics: at most {len(records)}")
    # Evenly spaced, so that a small count covers every check.
    return [records[i * len(records) // count] for i in range(count)]


def _record(check: str, metric: str, unit: str, better: schema.Better, parameters: dict[str, object]) -> Record:
    return Record(check, metric, unit, better, (1.0,), parameters=parameters, system="bench", host="", time="")


def _level(case: Record) -> float:
    """Return the usual value of a case: equal parts are equal, and larger data are slower."""
    p = case.parameters
    distance = 1.0 if p["pu_nodes"] == [p["bank"]] else 1.6
    return 30 / distance if case.check == "bandwidth" else 1.5 * (p["size_bytes"] / 4096) ** 0.37 * distance


def make(folder: Path, hosts: int, metrics: int, repetitions: int, seed: int) -> int:
    """Fill a store; return its number of records."""
    rng = np.random.default_rng(seed)
    wanted = cases(metrics)
    template = schema.to_frame([c for _ in range(repetitions) for c in wanted])
    error = rng.choice(np.array(errors()), metrics)
    series = shapes()
    deviations = np.concatenate(series)
    sizes = np.array([len(s) for s in series])
    which = rng.integers(0, len(series), metrics)[1::2]
    begins, sizes = (np.cumsum(sizes) - sizes)[which], sizes[which]
    level = np.array([_level(c) for c in wanted])
    sign = np.array([1.0 if c.better == "higher" else -1.0 for c in wanted])
    bank = np.array([c.parameters["bank"] for c in wanted])
    when = (np.arange(repetitions)[:, None] * 86_400 + np.arange(metrics)).ravel() + _STARTED
    template = template.with_columns(_times(when * 1000))
    folder.mkdir()
    total = 0
    for host in range(hosts):
        shape = (repetitions, metrics)
        noise = rng.standard_normal(shape)
        noise[:, 1::2] = deviations[begins + (rng.random((repetitions, len(which))) * sizes).astype(int)]
        loss = -error * noise + rng.standard_normal(metrics) * SPREAD
        loss += (rng.random(shape) < DISTURBED) * rng.uniform(*BY, shape)
        if host % 100 == 37:
            loss += np.where(bank == host // 100 % NODES, 0.25, 0.0)
        if host % 1000 == 501:
            loss += 0.15
        values = level * np.maximum(1 - sign * np.minimum(loss, 0.9), 0.05)
        value = pl.Series("value", values.ravel())
        table = template.with_columns(
            value,
            value.reshape((len(value), 1)).arr.to_list().alias("samples"),
            pl.lit(f"n{host:05d}").cast(pl.Categorical).alias("host"),
        )
        if host % 1000 == 750:
            table = table.head(len(table) // 2)
        total += len(table)
        store.append(folder, table)
    return total


def _times(milliseconds: np.ndarray) -> pl.Series:
    return pl.Series("time", milliseconds).cast(pl.Datetime("ms", "UTC")).cast(pl.Datetime("us", "UTC"))


def make_history(folder: Path, hosts: int, metrics: int, months: int, seed: int) -> int:
    """Fill a store with monthly sessions of three repetitions; return its number of records.

    Files are as from joined appends: some hundred hosts of one month each. After half of the months one host in a
    hundred loses a quarter of a bank's metrics, and new firmware makes all latencies 4 % worse.
    """
    rng = np.random.default_rng(seed)
    wanted = cases(metrics)
    error = rng.choice(np.array(errors()), metrics)
    level = np.array([_level(c) for c in wanted])
    sign = np.array([1.0 if c.better == "higher" else -1.0 for c in wanted])
    bank = np.array([c.parameters["bank"] for c in wanted])
    latency = np.array([c.check == "latency" for c in wanted])
    block = min(hosts, _BLOCK)
    rows = schema.to_frame(wanted)
    template = pl.concat([rows] * block)
    # The last session is of today.
    begin = (int(time.time()) // 86_400 - 30 * (months - 1)) * 86_400_000
    folder.mkdir()
    total = 0
    for month in range(months):
        broken = month >= months // 2
        when = begin + month * 30 * 86_400_000 + np.arange(metrics) * 1000
        template = template.with_columns(pl.concat([_times(when)] * block))
        for first in range(0, hosts, block):
            numbers = np.arange(first, min(first + block, hosts))
            shape = (len(numbers), metrics, REPETITIONS)
            loss = error[:, None] * rng.standard_normal(shape)
            disturbed = rng.random(shape[:2]) < DISTURBED
            loss += (disturbed * rng.uniform(*BY, shape[:2]))[..., None]
            if broken:
                loss[..., latency, :] += 0.04
                for place in np.flatnonzero(numbers % 100 == 37):
                    loss[place, bank == numbers[place] // 100 % NODES] += 0.25
            samples = level[:, None] * np.maximum(1 - sign[:, None] * np.minimum(loss, 0.9), 0.05)
            samples = np.sort(samples.reshape(-1, REPETITIONS), axis=1)
            names = pl.Series([f"n{number:05d}" for number in numbers])
            table = template.head(len(samples)).with_columns(
                names.gather(np.repeat(np.arange(len(numbers)), metrics)).cast(pl.Categorical).alias("host"),
                pl.Series("samples", samples).arr.to_list(),
                pl.Series("value", np.ascontiguousarray(samples[:, 1])),
            )
            total += len(table)
            store.append(folder, table)
    return total


def stages(folder: Path, out: Path) -> None:
    """Read, judge and report; print the seconds of each and the peak memory of this process as JSON."""
    from firsttouch.judge.judging import judged  # noqa: PLC0415
    from firsttouch.report import inputs  # noqa: PLC0415 - importing is not part of the stages' time
    from firsttouch.report.fleet import fleet_pages  # noqa: PLC0415
    from firsttouch.systems.definition import Undescribed  # noqa: PLC0415

    marks = [time.monotonic()]
    samples = inputs.gather([folder]).samples()
    marks.append(time.monotonic())
    verdicts = judged(samples, Undescribed("bench"))
    marks.append(time.monotonic())
    pages = fleet_pages.build([verdicts], out)
    marks.append(time.monotonic())
    seconds = dict(zip(("reading", "judging", "reporting"), np.diff(marks).tolist(), strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    values = int(verdicts.samples.counts.sum())
    print(json.dumps({**seconds, "peak_bytes": peak, "values": values, **pages.document["counts"]}))


def run(argv: list[str]) -> tuple[float, float, str]:
    """Return the wall seconds, the peak memory (bytes) and the output of a program that must succeed."""
    with tempfile.TemporaryFile("w+") as output:
        begin = time.monotonic()
        process = subprocess.Popen(argv, stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{argv[0]} ended with {process.returncode}")
        output.seek(0)
        return seconds, used.ru_maxrss * 1024, output.read()


def first_views(folder: Path) -> list[float]:
    """Return the seconds until the first contentful paint of each load of the page; empty without Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return []
    script = (
        "const f = document.getElementById('f'); const look = () => { const p = "
        "f.contentWindow.performance.getEntriesByName('first-contentful-paint')[0]; "
        "if (p) { document.title = p.startTime } else { setTimeout(look, 20) } }; look()"
    )
    frame = '<!DOCTYPE html><title>?</title><iframe id="f" src="index.html" width="1200" height="850"></iframe>'
    frame += f"<script>{script}</script>"
    (folder / "frame.html").write_text(frame, encoding="utf-8")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    paints: list[float] = []
    try:
        # A document that is dumped before its first paint has no time and is loaded again.
        for _ in range(3 * VIEWS):
            if len(paints) == VIEWS:
                break
            with tempfile.TemporaryDirectory() as profile:
                argv = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
                argv += ["--no-first-run"]
                argv += [f"--user-data-dir={profile}", "--window-size=1280,900", "--timeout=20000", "--dump-dom"]
                address = f"http://127.0.0.1:{server.server_address[1]}/frame.html"
                done = subprocess.run([*argv, address], capture_output=True, text=True, timeout=120, check=True)
            if title := re.search(r"<title>([\d.]+)</title>", done.stdout):
                paints.append(float(title[1]) / 1000)
    finally:
        server.shutdown()
        server.server_close()
        (folder / "frame.html").unlink()
    return paints


def bench(work: Path, hosts: int, metrics: int, repetitions: int, seed: int) -> dict[str, object]:
    """Return the measurements of one fleet."""
    folder, out = work / "store", work / "out"
    begin = time.monotonic()
    total = make(folder, hosts, metrics, repetitions, seed)
    print(f"  simulated {total} records in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    out.mkdir()
    staged = json.loads(run([sys.executable, __file__, "--stages", str(folder), str(out)])[2])
    shutil.rmtree(out)
    firsttouch = str(Path(sys.executable).with_name("firsttouch"))
    seconds, peak, _ = run([firsttouch, "report", str(folder), "-o", str(out)])
    views = first_views(out)
    result = {
        "hosts": hosts,
        "metrics": metrics,
        "passes": repetitions,
        "stages": staged,
        "command_s": seconds,
        "command_peak_bytes": peak,
        "page_bytes": (out / "index.html").stat().st_size,
        "first_view_s": views,
    }
    joined = work / "joined"
    result["joining_s"] = run([firsttouch, "store", "append", str(joined), str(folder)])[0]
    result["joined_command_s"] = run([firsttouch, "report", str(joined), "-o", str(out)])[0]
    return result


def bench_history(work: Path, hosts: int, metrics: int, months: int, seed: int) -> dict[str, object]:
    """Return the measurements of a fleet with a history: of the whole store, and of its last session only."""
    folder, out = work / "store", work / "out"
    records = make_history(folder, hosts, metrics, months, seed)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"  simulated {records} records", file=sys.stderr, flush=True)
    argv = [str(Path(sys.executable).with_name("firsttouch")), "report", str(folder), "-o", str(out)]
    result: dict[str, object] = {"hosts": hosts, "metrics": metrics, "months": months, "store_bytes": size}
    for name, options in (("last_session", ["--max-age", "20d"]), ("all", [])):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds, peak, _ = run([*argv, *options])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        result[name] = {"wall_s": seconds, "cpu_s": used, "peak_bytes": peak}
    return result


def show(result: dict[str, object]) -> None:
    """Print the measurements of one fleet as a small table."""
    staged = result["stages"]
    size = f"{result['hosts']} hosts x {result['metrics']} metrics x {result['passes']} repetitions"
    print(f"{size}, {staged['values']} values")
    for name in ("reading", "judging", "reporting"):
        print(f"  {name:34}{staged[name]:8.1f} s")
    print(f"  {'stages, peak memory':34}{staged['peak_bytes'] / 1e9:8.2f} GB")
    print(f"  {'firsttouch report':34}{result['command_s']:8.1f} s{result['command_peak_bytes'] / 1e9:8.2f} GB")
    print(f"  {'the same from a joined store':34}{result['joined_command_s']:8.1f} s")
    print(f"  {'joining':34}{result['joining_s']:8.1f} s")
    print(f"  {'page':34}{result['page_bytes'] / 1e6:8.2f} MB (limit {PAGE_MOST / 1e6:.0f})")
    if views := result["first_view_s"]:
        spread = f"{min(views):.2f} to {max(views):.2f}"
        print(f"  {'first view':34}{statistics.median(views):8.2f} s ({spread}, {len(views)} loads)")
    else:
        print(f"  {'first view':34}not measured: Chromium is not installed")
    print(
        f"  verdicts: {', '.join(f'{staged[w]} {w}' for w in ('fail', 'invalid', 'suspect', 'undecided', 'pass'))}"
    )


def main() -> None:
    """Measure one repetition of each metric, then two repetitions of half of the metrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--metrics", type=int, default=METRICS)
    parser.add_argument("--repetitions", type=int, help="measure this number of repetitions of all metrics only")
    parser.add_argument(
        "--months", type=int, help="measure a store with monthly sessions instead, and its history"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--stages", nargs=2, type=Path, metavar=("STORE", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stages:
        stages(*args.stages)
        return
    if args.months:
        with tempfile.TemporaryDirectory() as work:
            print(
                json.dumps(bench_history(Path(work), args.hosts, args.metrics, args.months, args.seed), indent=2)
            )
        return
    wanted = [(args.metrics, 1), (max(1, args.metrics // 2), 2)]
    if args.repetitions:
        wanted = [(args.metrics, args.repetitions)]
    for metrics, repetitions in wanted:
        with tempfile.TemporaryDirectory() as work:
            result = bench(Path(work), args.hosts, metrics, repetitions, args.seed)
        if args.json:
            print(json.dumps(result, indent=2))
        else:
            show(result)


if __name__ == "__main__":
    main()
