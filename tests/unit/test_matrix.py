# SPDX-License-Identifier: Apache-2.0
"""The measured matrix for hwloc, the kernel's interleave weights, CSV and JSON: `firsttouch topology --export`."""

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from factories.host_records import invalid
from factories.host_records import matrix_records as records
from firsttouch.host.topology import load
from firsttouch.records.schema import Record, append
from firsttouch.scenarios import tiers

#: Two packages with 8 PUs; each has two banks, of which the second one has no PUs of its own (NUMA nodes 1 and 3).
XML = "lstopo_attached.xml"


@pytest.fixture
def export(run_cli, stored, tmp_path):
    """Return a function that exports records in a form and returns status, standard output and error."""

    def run(form, measured, *options):
        file = tmp_path / "records.jsonl"
        file.unlink(missing_ok=True)
        append(file, measured)
        return run_cli("topology", "--xml", str(stored / XML), "--export", form, str(file), *options)

    return run


@pytest.fixture
def stored(request):
    return request.config.rootpath / "tests" / "golden"


def test_lstopo_shows_the_measured_attributes(export, tmp_path):
    lstopo = shutil.which("lstopo-no-graphics")
    assert lstopo, "install hwloc"
    file = tmp_path / "measured.xml"
    status, out, _ = export("memattrs", records(), "-o", str(file))
    assert (status, out) == (0, f"{file}\n")
    done = subprocess.run([lstopo, "--input", file, "--memattrs"], check=True, capture_output=True, text=True)
    assert not done.stderr
    shown = {}
    for line in done.stdout.splitlines():
        if line.startswith("Memory attribute"):
            shown[line.split("`")[1].split("'")[0]] = values = []
        elif " from cpuset " in line:
            values.append(" ".join(line.split()))
    assert {name: len(values) for name, values in shown.items() if values} == {
        "Bandwidth": 8,
        "Latency": 8,
        "ReadLatency": 8,
    }
    # 100 and 33 GB/s in MiB/s; the initiators are the PUs of NUMA nodes 0 and 2, hwloc's Packages 0 and 1.
    assert next(v for v in shown["Bandwidth"] if "L#0 " in v).startswith("NUMANode L#0 = 95367 from")
    assert any(v.startswith("NUMANode L#1 = 31471 from") for v in shown["Bandwidth"])
    assert any(v.startswith("NUMANode L#3 = 230 from") for v in shown["Latency"])
    # The measured XML is a topology like any other, and can be measured again.
    assert load(xml=file).memory_nodes == (0, 1, 2, 3)
    assert "MeasuredMemoryAttributes" in load(xml=file).info


def test_the_weights_follow_the_bandwidths(export):
    status, out, _ = export("weights", records())
    assert status == 0
    assert [line for line in out.splitlines() if not line.startswith("#")] == ["set -e"] + [
        f"echo {weight} > /sys/kernel/mm/mempolicy/weighted_interleave/node{bank}"
        for bank, weight in enumerate((3, 1, 3, 1))
    ]
    assert "# bank 1: 33 GB/s, 12.4% of the sum, given 12.5% of the pages" in out
    assert "# largest error of a share: 0.8%" in out
    # Over all four banks each package would need less of the other package's.
    hint = "# NUMA node 2 alone needs 3:1:6:2 for banks 0-3: restrict its instances to its own tiers, "
    assert hint + "--weighted-interleave=2-3" in out
    assert "alone needs" not in export("weights", records(remote=1.0))[1]
    assert subprocess.run(["sh", "-n"], input=out, text=True, check=False).returncode == 0


#: A text that is a command of a shell, a formula of a spreadsheet, or not XML, unless it is escaped.
HOSTILE = (
    "x\n: >forged\n#",
    "x\r: >forged",
    "$(: >forged)`: >forged`",
    "'; : >forged; '",
    "\x1b[31m\x85\u2028: >forged\n",
)


@pytest.mark.parametrize("host", HOSTILE)
def test_no_text_of_a_record_is_a_command_of_the_script(export, tmp_path, host):
    status, out, _ = export("weights", records(host=host))
    assert status == 0
    assert out.splitlines()[1].startswith("# Weights of weighted interleave for ")
    plain = export("weights", records())[1]
    assert [line for line in out.split("\n") if line[:1] != "#"] == [
        line for line in plain.split("\n") if line[:1] != "#"
    ]
    dry = out.replace("echo ", ": ").replace(" > /sys/", " /sys/")
    subprocess.run(["sh"], input=dry, text=True, check=True, cwd=tmp_path)
    assert not (tmp_path / "forged").exists()


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_record_breaks_the_xml(export, text):
    measured = [replace(r, host=text, parameters={**r.parameters, "program": text}) for r in records()]
    ET.fromstring(export("memattrs", measured)[1])  # noqa: S314


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        ((10, 10), (1, 1)), ((100, 33), (3, 1)), ((460, 307, 36), (13, 9, 1)), ((1000, 1), (255, 1)),
        ((5,), (1,)), ((1.02, 1.0), (1, 1)),
    ],
)  # fmt: skip
def test_weights_are_small_and_close(rates, weights):
    assert tiers.small_weights(rates) == weights
    assert tiers.weights_error(weights, rates) <= (0.05 if max(rates) < 1000 else 3)


def test_json_has_a_row_for_each_value(export):
    document = json.loads(export("json", records())[1])
    rows = document["values"]
    assert len(rows) == 16
    far = {"initiator": 0, "bank": 3, "metric": "random_latency", "value": 230.0, "unit": "ns"}
    far |= {"samples": 3, "pages": "thp", "bytes": 1 << 30, "program": "firsttouch-probe", "host": "n1"}
    assert far in [{name: row[name] for name in far} for row in rows]
    assert [n["index"] for n in document["numa_nodes"]] == [0, 1, 2, 3]


def test_a_record_stands_for_pairs_alike(export):
    alike = [r for r in records() if r.parameters["pu_nodes"] == [0]]
    for record in alike:
        bank = (record.parameters["bank"] + 2) % 4
        record.parameters["stands_for"] = [{"pu_nodes": [2], "banks": [bank]}]
    rows = json.loads(export("json", alike)[1])["values"]
    assert len(rows) == 16
    assert {r["measured_initiator"] for r in rows if r["initiator"] == 2} == {0}


@pytest.mark.parametrize(
    ("measured", "form", "message"),
    [
        (records(banks=(0, 1, 2)), "weights", "no valid copy_bandwidth of NUMA node 0 with bank 3 and 1 more"),
        ([invalid(r) if r.metric == "random_latency" else r for r in records()], "json",
         "no valid random_latency"),
        (records() + records(effort="quick"), "memattrs", "records of several efforts: full, quick"),
        (records() + records(host="n2"), "json", "the records are of n1, n2, the topology is of a host without"),
        (records(banks=(0, 1, 2, 3, 4)), "json", "NUMA node 0 with bank 4 was measured, which this topology"),
        ([Record("topology", "pus", "1", "neither", (2,))], "json",
         "no record of the checks latency and bandwidth"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_one_clear_line(export, measured, form, message):
    status, out, err = export(form, measured)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_records_of_another_host_and_lacking_records(run_cli, tmp_path, monkeypatch):
    append(tmp_path / "r.jsonl", records(host="elsewhere"))
    status, _, err = run_cli("topology", "--export", "json", str(tmp_path / "r.jsonl"))
    assert status == 2
    assert "the records are of elsewhere, the topology is of" in err
    monkeypatch.setenv("FIRSTTOUCH_OUT", str(tmp_path))
    assert "run `firsttouch characterize`" in run_cli("topology", "--export", "json")[2]
    assert run_cli("topology", str(tmp_path))[0] == 2
    assert run_cli("topology", "--json", "--export", "json", str(tmp_path))[0] == 2


def test_a_latency_within_a_cache_is_not_that_of_memory(run_cli, stored, tmp_path):
    append(
        tmp_path / "r.jsonl",
        [r for r in records(host="host", banks=[0], size=1 << 20) if r.parameters["pu_nodes"] == [0]],
    )
    status, _, err = run_cli("topology", "--xml", str(stored / "lstopo_host.xml"), "--export", "json",
                             str(tmp_path / "r.jsonl"))  # fmt: skip
    assert status == 2
    assert "the latency of NUMA node 0 with bank 0 was measured up to 1 MiB, within the cache of" in err
