# SPDX-License-Identifier: Apache-2.0
"""The files in contrib/monitoring/ with the real Prometheus, and the dashboard with the types of Grafana."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factories import http_server
from factories.fleet_records import records_by_host
from firsttouch import paths
from firsttouch.judge.judging import judged
from firsttouch.records import samples_table
from firsttouch.report.fleet import fleet_pages
from firsttouch.systems.definition import Undescribed

RULES = paths.MONITORING / "firsttouch.rules.yml"
DASHBOARD = paths.MONITORING / "grafana-dashboard.json"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="ALERTS ARE NOT TESTED: no prometheus on PATH (Debian: apt-get install prometheus)",
)
#: The alerts for these series; times are since 1970.
UNIT_TESTS = """
rule_files: [{rules}]
evaluation_interval: 1h
tests:
  - interval: 1h
    input_series:
      - series: 'firsttouch_verdict{{host="n1",system="s",verdict="fail"}}'
        values: '1x800'
      - series: 'firsttouch_verdict{{host="n2",system="s",verdict="suspect"}}'
        values: '1x800'
      - series: 'firsttouch_verdict{{host="n2",system="s",verdict="fail"}}'
        values: '0x800'
      - series: 'firsttouch_verdict{{host="n4",system="s",verdict="undecided"}}'
        values: '1x800'
      - series: 'firsttouch_missing{{host="n3",system="s"}}'
        values: '2x800'
      - series: 'firsttouch_common_loss_ratio{{system="s"}}'
        values: '0.04x800'
      - series: 'firsttouch_common_loss_ratio{{system="t"}}'
        values: '0x800'
      - series: 'firsttouch_report_generated_timestamp_seconds{{version="1",job="firsttouch",instance="a"}}'
        values: '0x800'
      # Another system's report, which is new, hides no old one.
      - series: 'firsttouch_report_generated_timestamp_seconds{{version="1",job="firsttouch",instance="b"}}'
        values: '9e9x800'
      - series: 'firsttouch_measured_timestamp_seconds{{host="n1",system="s"}}'
        values: '0x800'
    alert_rule_test:
      - {{alertname: FirsttouchHostFails, eval_time: 1h, exp_alerts: [{fails}]}}
      - {{alertname: FirsttouchHostSuspect, eval_time: 0m, exp_alerts: []}}
      - {{alertname: FirsttouchHostSuspect, eval_time: 2h, exp_alerts: [{suspect}]}}
      - {{alertname: FirsttouchHostUndecided, eval_time: 20d, exp_alerts: []}}
      - {{alertname: FirsttouchHostUndecided, eval_time: 22d, exp_alerts: [{undecided}]}}
      - {{alertname: FirsttouchHostsLoseAlike, eval_time: 1h, exp_alerts: [{alike}]}}
      - {{alertname: FirsttouchResultsMissing, eval_time: 2h, exp_alerts: [{missing}]}}
      - {{alertname: FirsttouchReportOld, eval_time: 7d, exp_alerts: []}}
      - {{alertname: FirsttouchReportOld, eval_time: 9d, exp_alerts: [{report}]}}
      - {{alertname: FirsttouchResultsOld, eval_time: 29d, exp_alerts: []}}
      - {{alertname: FirsttouchResultsOld, eval_time: 31d, exp_alerts: [{results}]}}
"""


#: Each alert of these tests: its name, severity, labels and summary.
ALERTS = """
fails HostFails critical host=n1,system=s n1 fails its memory validation (system s)
suspect HostSuspect warning host=n2,system=s n2 is suspect, or its measurement was invalid (system s)
undecided HostUndecided warning host=n4,system=s n4 has been undecided for weeks (system s)
alike HostsLoseAlike critical system=s Most hosts of system s lost about 4% of the same metrics
missing ResultsMissing warning host=n3,system=s n3 lacks 2 results that other hosts have
report ReportOld warning job=firsttouch,instance=a The newest firsttouch report is 9d 0h 0m 0s old
results ResultsOld warning host=n1,system=s n1 was last measured 31d 0h 0m 0s ago
"""


@needs_prometheus
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    text = RULES.read_text(encoding="utf-8")
    descriptions = dict(re.findall(r'alert: (\w+)\n.*?description: "(.*?)"\n', text, re.DOTALL))
    assert len(descriptions) == text.count("- alert:") == 8
    expected = {}
    for line in ALERTS.strip().splitlines():
        key, name, severity, labels, summary = line.split(maxsplit=4)
        annotations = {"summary": summary, "description": descriptions[f"Firsttouch{name}"]}
        labelled = {"severity": severity, **dict(label.split("=") for label in labels.split(","))}
        expected[key] = json.dumps({"exp_labels": labelled, "exp_annotations": annotations})
    file = tmp_path / "tests.yml"
    file.write_text(UNIT_TESTS.format(rules=RULES, **expected))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a fleet with a host that fails."""
    out = tmp_path_factory.mktemp("report")
    records = [r for host_records in records_by_host(hosts=12).values() for r in host_records]
    fleet = judged(samples_table.of_records(records), Undescribed("s"))
    fleet_pages.build([fleet], out)
    return out


@pytest.fixture
def address(report: Path) -> Iterator[str]:
    """The address of a web server for the report."""
    with http_server.folder(report) as served:
        yield served


@needs_prometheus
def test_prometheus_scrapes_the_summary_and_the_alert_fires(address: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = address.removeprefix("http://")
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{RULES}]\n"
        "scrape_configs:\n"
        f"  - {{job_name: firsttouch, metrics_path: /summary.prom, honor_labels: true,"
        f" static_configs: [{{targets: ['{target}']}}]}}\n"
    )
    argv = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address=127.0.0.1:{port}"]
    server = subprocess.Popen(
        [*argv, f"--storage.tsdb.path={tmp_path / 'data'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        fails = {"alertname": "FirsttouchHostFails", "host": "n007", "system": "s", "severity": "critical"}
        _eventually(
            f"http://127.0.0.1:{port}/api/v1/alerts",
            lambda data: [a for a in data["alerts"] if a["labels"] == fails and a["state"] == "firing"],
        )
        query = "count(firsttouch_verdict)"
        count = _eventually(f"http://127.0.0.1:{port}/api/v1/query?query={query}", lambda data: data["result"])
        assert int(count["result"][0]["value"][1]) == 12 * 5
    finally:
        server.terminate()
        server.wait(timeout=120)


def _eventually(url: str, wanted: Any) -> dict[str, Any]:
    """Return the data of an answer of Prometheus, once it has what is wanted."""
    for _ in range(1200):
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 - its scheme is http
                data: dict[str, Any] = json.load(answer)["data"]
            if wanted(data):
                return data
        except OSError:
            pass  # it has not started yet
        time.sleep(0.1)
    raise AssertionError(f"{url} has not what is wanted after 120 s")


def test_every_series_of_rules_and_dashboard_is_written(report: Path) -> None:
    written = set(re.findall(r"^(firsttouch_\w+)", (report / "summary.prom").read_text(), re.MULTILINE))
    # Reports of a few hosts have these two instead of losses; test_report_openmetrics.py checks them.
    written |= {"firsttouch_local_latency_seconds", "firsttouch_local_bandwidth_bytes_per_second"}
    for file in (RULES, DASHBOARD):
        used = set(re.findall(r"\b(firsttouch_\w+)", file.read_text(encoding="utf-8")))
        assert used
        assert used <= written


def test_grafana_reads_all_of_the_dashboard() -> None:
    models = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard",
        reason="THE DASHBOARD IS NOT TESTED: `make setup` installs its types",
    )
    from grafana_foundation_sdk.cog import encoder, plugins  # noqa: PLC0415

    plugins.register_default_plugins()
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    read = models.Dashboard.from_json(dashboard)
    again = json.loads(json.dumps(read, cls=encoder.JSONEncoder))
    assert _lost(dashboard, again) == []
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len({*ids}) >= 8
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    cells = [
        (x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(cells) == len({*cells})
    assert all(0 <= x < 24 for x, _ in cells)


def _lost(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the keys and values that Grafana's types do not keep, because it does not know them."""
    if isinstance(ours, dict):
        here = theirs if isinstance(theirs, dict) else {}
        return [
            lost
            for key, value in ours.items()
            if value is not None
            for lost in (_lost(value, here[key], f"{path}.{key}") if key in here else [f"{path}.{key}"])
        ]
    if isinstance(ours, list):
        same = isinstance(theirs, list) and len(ours) == len(theirs)
        pairs = zip(ours, theirs, strict=True) if same else []
        return [lost for i, (a, b) in enumerate(pairs) for lost in _lost(a, b, f"{path}[{i}]")] + [path] * (
            not same
        )
    return [] if ours == theirs else [path]
