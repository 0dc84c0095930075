# SPDX-License-Identifier: Apache-2.0
"""Counters of errors and throttling, from stored files of the kernel, and the records of what happened."""

import pytest

from factories.stored_roots import configured_root, stored_root
from firsttouch.benchmarks import kernel_settings, recording
from firsttouch.benchmarks.recording import Counter, Watch, hold_and_record, watching_health
from firsttouch.execution.progress import say
from firsttouch.records import samples_table
from firsttouch.records.schema import Record, read

MC = "sys/devices/system/edac/mc/mc0/"
DIMM = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"
INTERRUPTS = """\
            CPU0       CPU1
  0:         44          0   IO-APIC    2-edge      timer
TRM:          9          9   Thermal event interrupts
MCE:          {mce}          2   Machine check exceptions
MCP:        700        700   Machine check polls
DFR:          1          0   Deferred Error APIC interrupts
"""


def throttled(pu, core, package):
    base = f"sys/devices/system/cpu/cpu{pu}/thermal_throttle/"
    return {base + "core_throttle_count": str(core), base + "package_throttle_count": str(package)}


@pytest.fixture
def root(tmp_path):
    files = {"proc/interrupts": INTERRUPTS.format(mce=0)}
    for pu in range(4):
        files |= throttled(pu, 10, 100)
    return configured_root(tmp_path, files)


def set_to(root, name, text):
    (root / name).write_text(f"{text}\n")


def test_what_happened_between_two_readings(root):
    watch = Watch(root)
    set_to(root, MC + "dimm1/dimm_ce_count", 12)
    set_to(root, MC + "dimm0/dimm_ue_count", 1)
    set_to(root, MC + "ce_noinfo_count", 3)
    set_to(root, "proc/interrupts", INTERRUPTS.format(mce=5))
    for pu in range(4):
        for name, text in throttled(pu, 10 + (pu < 2), 107).items():
            set_to(root, name, text)
    records = {(r.metric, r.parameters.get("module")): r.value for r in watch.records()}
    assert records == {
        ("corrected_errors", DIMM): 12,
        ("corrected_errors", "mc0, unknown module"): 3,
        ("uncorrected_errors", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"): 1,
        ("machine_checks", "exceptions"): 5,
        # PUs 0 and 1 are two cores of package 0; all PUs of a package count its events.
        ("throttle_events", "cores of package 0"): 2,
        ("throttle_events", "package 0"): 7,
        ("throttle_events", "package 1"): 7,
    }
    assert any(line.startswith("corrected errors: 12 in 0.") and DIMM in line for line in watch.event_lines())


def test_counters_that_begin_again_vanish_or_appear(root):
    set_to(root, MC + "dimm1/dimm_ce_count", 50)
    before = recording.read_counters(root)
    set_to(root, MC + "dimm1/dimm_ce_count", 2)
    (root / MC / "dimm0/dimm_ce_count").write_text("nonsense\n")
    (root / "sys/devices/system/node/node1/memory_failure").mkdir()
    set_to(root, "sys/devices/system/node/node1/memory_failure/total", 4)
    happened = recording.counted_between(before, recording.read_counters(root))
    assert happened[Counter("corrected_errors", DIMM)] == 2
    assert Counter("corrected_errors", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0") not in happened
    assert Counter("uncorrected_errors", "pages of NUMA node 1") not in happened
    assert recording.read_counters(root)[Counter("uncorrected_errors", "pages of NUMA node 1")] == 4


def test_older_edac_drivers(tmp_path):
    files = {
        "csrow0/ch0_ce_count": "1",
        "csrow0/ch0_dimm_label": "DIMM_A1",
        "csrow0/ch1_ce_count": "2",
        "csrow0/ue_count": "3",
        "ce_count": "9",
    }
    root = stored_root(tmp_path, {MC + name: text for name, text in files.items()})
    assert recording.read_counters(root) == {
        Counter("corrected_errors", "DIMM_A1"): 1,
        Counter("corrected_errors", "mc0 csrow0 ch1"): 2,
        Counter("uncorrected_errors", "mc0 csrow0"): 3,
    }
    root = stored_root(tmp_path / "oldest", {MC + "ce_count": "9", MC + "ce_noinfo_count": "9"})
    assert recording.read_counters(root) == {Counter("corrected_errors", "mc0"): 9}


def test_a_measurement_has_the_health_of_its_host(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Watch.__init__, "__defaults__", (root,))
    file = tmp_path / "records.jsonl"
    with watching_health(file, say=say):
        set_to(root, MC + "dimm1/dimm_ce_count", 1)
    assert {r.metric: r.value for r in read(file)}["corrected_errors"] == 1
    assert DIMM in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), watching_health(file):
        raise KeyboardInterrupt
    assert len(read(file)) == 4
    with watching_health(None):
        pass


def test_records_state_the_load_before_the_measurement(tmp_path, monkeypatch):
    busy = Record("topology", "busy_pus", "1", "neither", (2.0,))
    monkeypatch.setattr(kernel_settings, "busy_pus", lambda *_: busy)
    file = tmp_path / "records.jsonl"
    with hold_and_record(file, share_host=True) as keep:
        assert not file.exists()  # a skipped step has no records
        for number in range(2):
            keep([Record("latency", "random_latency", "ns", "lower", (90.0 + number,), {"bank": 0})])
    assert [r.metric for r in read(file)].count("busy_pus") == 1
    assert samples_table.of_records(read(file)).is_busy(slice(0, 2)).all()


def test_a_host_that_shows_nothing_has_no_record(tmp_path):
    watch = Watch(tmp_path)
    assert (watch.records(), watch.event_lines()) == ([], [])
