# SPDX-License-Identifier: Apache-2.0
"""How well changes in the history of hosts are detected and dated, and how many are reported of stable hosts.

Method. A fleet of HOSTS hosts with METRICS metrics (1,000 series), measured in 12 monthly or 52 weekly sessions of
three repetitions each; a session's value is their median. The noise is that of a repetition. Its shape is normal
for every other metric, and that of real repetitions (bench/data/repetitions.csv) for the rest. One session in a
hundred is disturbed as a whole and 5 to 30 % worse, and half of these are followed by another one that is.

- stable: no host changes; every change that is reported is false
- step: one series in each fleet changes by STEPS in the second to last quarter of its sessions; detected if a
  change of that series in the right direction is within two sessions of the true one
- fleet: half of the hosts change by 3 % in a metric at one time: detected if one line names at least 90 % of these
- noisy: one host has five times the noise of the others and never changes
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from firsttouch.judge import history
from firsttouch.judge.history import Change
from firsttouch.judge.samples_table import SamplesTable
from firsttouch.records.cases import Case

HOSTS, METRICS, REPETITIONS = 50, 20, 3
SESSIONS = {"12 monthly": (12, 30), "52 weekly": (52, 7)}
NOISE = (0.01, 0.02, 0.05)
STEPS = (0.03, 0.05, 0.10)
DISTURBED, BY, AGAIN = 0.01, (0.05, 0.30), 0.5
REPEATED = Path(__file__).with_name("data") / "repetitions.csv"
_DAY = 86_400_000
CASES = [
    Case("s", "bandwidth", "copy_bandwidth", {"pu_nodes": [n], "bank": n}, "GB/s", "higher")
    for n in range(METRICS)
]
NAMES = [f"n{n:03d}" for n in range(HOSTS)]


def shapes() -> list[np.ndarray]:
    """Return series of real repetitions: deviations from the median in standard deviations, negative if worse."""
    series: dict[tuple[str, ...], list[float]] = {}
    with REPEATED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            series.setdefault((row["better"], row["metric"], row["case"]), []).append(float(row["value"]))
    signs = [1 if better == "higher" else -1 for better, *_ in series]
    values = [np.array(v) for v in series.values()]
    return [sign * (v - np.median(v)) / v.std(ddof=1) for sign, v in zip(signs, values, strict=True)]


def fleet(rng: np.random.Generator, sessions: int, noise: float) -> np.ndarray:
    """Return the values of a stable fleet: metric x host x session."""
    shape = (METRICS, HOSTS, sessions, REPETITIONS)
    scatter = rng.standard_normal(shape)
    real = shapes()
    for metric in range(0, METRICS, 2):
        scatter[metric] = rng.choice(real[rng.integers(len(real))], shape[1:])
    values = np.median(1 + noise * scatter, axis=3)
    disturbed = rng.random(values.shape) < DISTURBED
    again = disturbed & (rng.random(values.shape) < AGAIN)
    disturbed[..., 1:] |= again[..., :-1]
    values *= 1 - disturbed * rng.uniform(*BY, values.shape)
    return np.maximum(values, 0.05) * rng.uniform(20, 200, (METRICS, 1, 1))


def detected(values: np.ndarray, days: int) -> list[Change]:
    """Return the changes of a fleet that is measured every some *days*."""
    sessions, series, size = values.shape[2], METRICS * HOSTS, values.size
    table = SamplesTable(
        hosts=NAMES,
        cases=CASES,
        case=np.repeat(np.arange(METRICS, dtype=np.int32), HOSTS),
        host=np.tile(np.arange(HOSTS, dtype=np.int32), METRICS),
        counts=np.full(series, sessions),
        settings={},
        replaced={},
        replaced_of={},
        time=np.tile(np.arange(sessions) * days * _DAY, series),
        value=values.ravel(),
        valid=np.ones(size, dtype=np.bool_),
        judged=np.ones(size, dtype=np.bool_),
        reason=np.zeros(size, dtype=np.uint8),
        sessions_of_rows=np.tile(np.arange(HOSTS * sessions, dtype=np.int32), METRICS),
        busy_pus=None,
        reasons=[""],
    )
    return history.changes(table)


def stable(rng: np.random.Generator, sessions: int, days: int, noise: float, trials: int) -> dict[str, object]:
    """Return how many changes are reported of stable series, in 1,000 series each."""
    counts = [len(detected(fleet(rng, sessions, noise), days)) for _ in range(trials)]
    return {"kind": "stable", "false_per_1000_series": sum(counts) / trials, "fleets": trials}


def noisy(rng: np.random.Generator, sessions: int, days: int, noise: float, trials: int) -> dict[str, object]:
    """Return how many changes are reported of stable series if a host has five times the noise."""
    total = 0
    for _ in range(trials):
        values = fleet(rng, sessions, noise)
        values[:, 7] = fleet(rng, sessions, 5 * noise)[:, 7]
        total += len(detected(values, days))
    return {"kind": "noisy", "false_per_1000_series": total / trials, "fleets": trials}


def step(  # noqa: PLR0917 - as the others, with a size
    rng: np.random.Generator, sessions: int, days: int, noise: float, size: float, trials: int
) -> dict[str, object]:
    """Return the share of steps that are detected, and by how many sessions their dates are wrong."""
    errors, sizes, others = [], [], 0
    for _ in range(trials):
        values = fleet(rng, sessions, noise)
        place = int(rng.integers(sessions // 4, sessions - sessions // 4 + 1))
        metric, host = int(rng.integers(METRICS)), int(rng.integers(HOSTS))
        values[metric, host, place:] *= 1 - size
        right = None
        for change in detected(values, days):
            error = round(change.before / _DAY / days) - place
            parts = (f"memory of bank {metric}, bandwidth", "all memory, bandwidth")
            is_named = not {*parts}.isdisjoint((change.part, *change.others))
            is_right = is_named and change.hosts == (NAMES[host],) and change.change < 0
            if is_right and abs(error) <= 2:
                right = error, change.change
            else:
                others += 1
        if right is not None:
            errors.append(abs(right[0]))
            sizes.append(abs(-right[1] - size))
    exact = errors.count(0) / len(errors) if errors else float("nan")
    return {
        "kind": "step",
        "size": size,
        "detected": len(errors) / trials,
        "exact_date": exact,
        "size_error": float(np.median(sizes)) if sizes else float("nan"),
        "others": others / trials,
        "fleets": trials,
    }


def together(rng: np.random.Generator, sessions: int, days: int, noise: float, trials: int) -> dict[str, object]:
    """Return the share of changes of half a fleet that are one line, and how many lines there are."""
    right, lines = 0, 0
    for _ in range(trials):
        values = fleet(rng, sessions, noise)
        place = int(rng.integers(sessions // 4, sessions - sessions // 4 + 1))
        metric = int(rng.integers(METRICS))
        values[metric, ::2, place:] *= 0.97
        listed = detected(values, days)
        lines += len(listed)
        right += any(len({*NAMES[::2]}.intersection(c.hosts)) >= 0.9 * HOSTS / 2 for c in listed)
    return {"kind": "fleet", "detected": right / trials, "lines": lines / trials, "fleets": trials}


def measure(seed: int, trials: int) -> Iterator[dict[str, object]]:
    """Yield a result per number of sessions, noise and kind."""
    for name, (sessions, days) in SESSIONS.items():
        for noise in NOISE:
            rng = np.random.default_rng(seed)
            of = (rng, sessions, days, noise)
            for result in (
                stable(*of, trials),
                noisy(*of, trials),
                together(*of, trials),
                *(step(*of, size, trials) for size in STEPS),
            ):
                yield {"sessions": name, "noise": noise, **result}


def main() -> None:
    """Print the results as a table or as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="fleets per result")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for result in measure(args.seed, args.trials):
        if args.json:
            print(json.dumps(result), flush=True)
            continue
        figures = (
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in list(result.items())[2:]
        )
        print(
            f"{result['sessions']}, noise {100 * float(result['noise']):.0f} %: {', '.join(figures)}", flush=True
        )


if __name__ == "__main__":
    main()
