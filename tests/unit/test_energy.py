# SPDX-License-Identifier: Apache-2.0
"""The energy of a run, from stored files of the kernel and from a site's command."""

import json

import pytest
from msgspec.structs import replace

from factories.clocks import ManualClock
from factories.processes import write_program
from firsttouch.errors import BadInput
from firsttouch.execution import energy
from firsttouch.execution.energy import Meter, in_words
from firsttouch.execution.sampling import Watching
from firsttouch.records.cases import Case
from firsttouch.records.schema import Record, from_dict

#: Zones as kernels show them: folder -> name, largest count (uJ).
TWO_SOCKETS = {
    "intel-rapl:0": ("package-0", 262143328850),
    "intel-rapl:0:0": ("dram", 65712999613),
    "intel-rapl:1": ("package-1", 262143328850),
    "intel-rapl:1:0": ("dram", 65712999613),
}
#: A laptop: core and uncore are parts of the package, psys contains it, and MMIO counts it again.
LAPTOP = {
    "intel-rapl:0": ("package-0", 262143328850),
    "intel-rapl:0:0": ("core", 262143328850),
    "intel-rapl:0:1": ("uncore", 262143328850),
    "intel-rapl:1": ("psys", 262143328850),
    "intel-rapl-mmio:0": ("package-0", 262143328850),
}
#: EPYC: a driver of its own behind the same files, whose counters end at 2^16 J.
EPYC = {
    "intel-rapl:0": ("package-0", 65532610987),
    "intel-rapl:0:0": ("core", 65532610987),
    "intel-rapl:1": ("package-1", 65532610987),
    "intel-rapl:1:0": ("core", 65532610987),
}


@pytest.fixture(autouse=True)
def _without_a_command(monkeypatch):
    monkeypatch.delenv(energy.VARIABLE, raising=False)


class Host:
    """A stored root with zones of powercap, and a clock."""

    def __init__(self, root, zones):
        self.root, self.clock = root, ManualClock()
        self.folder = root / "sys/class/powercap"
        (self.folder / "intel-rapl").mkdir(parents=True)
        (self.folder / "intel-rapl/enabled").write_text("1\n")
        for zone, (name, most) in zones.items():
            (self.folder / zone).mkdir()
            (self.folder / zone / "name").write_text(f"{name}\n")
            (self.folder / zone / "max_energy_range_uj").write_text(f"{most}\n")
            self.count(zone, 1_000_000)

    def count(self, zone, microjoules):
        (self.folder / zone / "energy_uj").write_text(f"{microjoules}\n")

    def meter(self):
        return Meter(self.root, self.clock)


def test_packages_and_memory_are_added_and_nothing_twice(tmp_path):
    host = Host(tmp_path, TWO_SOCKETS)
    meter = host.meter()
    meter.begin()
    for number, zone in enumerate(TWO_SOCKETS, 1):
        host.count(zone, 1_000_000 + number * 100_000_000)
    host.clock.now += 20
    used = meter.end()
    assert used.parts == {
        "package-0": 100.0,
        "dram of package-0": 200.0,
        "package-1": 300.0,
        "dram of package-1": 400.0,
    }
    assert (used.joules, used.seconds, used.source) == (1000.0, 20.0, "powercap")
    assert in_words(used.to_dict()) == "1000 J (50.0 W), "
    assert used.to_dict(reads=4_000_000)["joules_per_million_reads"] == 250.0


@pytest.mark.parametrize(("zones", "parts"), [(LAPTOP, {"package-0"}), (EPYC, {"package-0", "package-1"})])
def test_parts_and_sums_of_a_package_are_left_out(tmp_path, zones, parts):
    host = Host(tmp_path, zones)
    meter = host.meter()
    meter.begin()
    for zone in zones:
        host.count(zone, 3_000_000)
    host.clock.now += 1
    assert meter.end().parts == dict.fromkeys(parts, 2.0)


def test_a_counter_that_wraps_around_several_times_is_read_in_between(tmp_path):
    """400 W for an hour: the counters of EPYC end after 164 s."""
    host = Host(tmp_path, EPYC)
    looks = []
    meter = host.meter()
    meter.begin()
    look = meter.watching(Watching(look=lambda pid, observed: looks.append(pid))).look
    most, watts = 65532610987, 400
    for second in range(0, 3600, 3):
        host.count("intel-rapl:0", (1_000_000 + second * watts * 1_000_000) % most)
        host.count("intel-rapl:1", (1_000_000 + second * watts * 1_000_000 // 2) % most)
        look(second, None)
        host.clock.now += 3
    used = meter.end()
    assert used.parts == pytest.approx({"package-0": 3597 * 400, "package-1": 3597 * 200})
    assert looks == list(range(0, 3600, 3))


def test_a_counter_that_is_set_back_is_no_wrap(tmp_path):
    """Root may write 0 into a counter: the rest up to its end was not used."""
    host = Host(tmp_path, TWO_SOCKETS)
    host.count("intel-rapl:0", 100_000_000_000)
    meter = host.meter()
    meter.begin()
    host.count("intel-rapl:0", 0)
    host.clock.now += 10
    used = meter.end()
    assert used.joules is None
    assert used.to_dict() == {"joules": None, "unknown": "the counter of package-0 was set back"}
    assert in_words(used.to_dict()) == ""


def test_idle_power_is_measured_before_and_stated_beside(tmp_path):
    host = Host(tmp_path, {"intel-rapl:0": TWO_SOCKETS["intel-rapl:0"]})
    meter = host.meter()
    sleep = host.clock.sleep

    def idle(seconds):
        sleep(seconds)
        host.count("intel-rapl:0", 1_000_000 + int(40e6 * seconds))

    host.clock.sleep = idle
    meter.begin(5.0)
    host.count("intel-rapl:0", 201_000_000 + 1_000_000_000)
    host.clock.now += 10
    document = meter.end().to_dict()
    assert (document["joules"], document["idle_watts"], document["joules_above_idle"]) == (1000.0, 40.0, 600.0)
    assert in_words(document) == "1000 J (100.0 W, idle 40.0 W), "


def test_counters_that_only_root_may_read_are_named(tmp_path):
    host = Host(tmp_path, TWO_SOCKETS)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    used = host.meter().end()
    assert used.joules is None
    assert used.unknown.startswith("this user cannot read energy_uj in /sys/class/powercap: ")


def test_cray_counts_the_node(tmp_path):
    file = tmp_path / "sys/cray/pm_counters/energy"
    file.parent.mkdir(parents=True)
    file.write_text("1200 J 1795704119788769 us\n")
    meter = Meter(tmp_path, clock := ManualClock())
    meter.begin()
    file.write_text("1500 J 1795704129788769 us\n")
    clock.now += 3
    used = meter.end()
    assert (used.source, used.parts) == ("pm_counters", {"host": 300.0})


def counting(tmp_path, script):
    return str(write_program(tmp_path / "joules", script))


def test_a_sites_command_prints_the_joules_so_far(tmp_path, monkeypatch):
    script = f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n + 250)) >{tmp_path}/n; echo $n.5 J"
    monkeypatch.setenv(energy.VARIABLE, f"{counting(tmp_path, script)} --host 'a b'")
    meter = Meter(tmp_path, clock := ManualClock())
    meter.begin()
    clock.now += 2
    used = meter.end()
    assert (used.source, used.joules) == ("joules", 250.0)


@pytest.mark.parametrize(
    ("script", "unknown"),
    [
        ("exit 1", "joules ended with status 1"),
        ("echo no data", "joules printed no number, but 'no data'"),
        ("echo 17", "the counters of joules did not move in 2 s"),
        (
            'n=$(cat "$0.n" 2>/dev/null || echo 9); echo $((n - 1)) >"$0.n"; echo $n',
            "the counter of host was set back",
        ),
    ],
)
def test_a_command_without_a_usable_answer_leaves_the_energy_unknown(tmp_path, monkeypatch, script, unknown):
    monkeypatch.setenv(energy.VARIABLE, counting(tmp_path, script))
    meter = Meter(tmp_path, clock := ManualClock())
    meter.begin()
    clock.now += 2
    assert (used := meter.end()).joules is None
    assert used.unknown.endswith(unknown)


def test_slurm_is_asked_for_this_step(tmp_path, monkeypatch, stand_in):
    stand_in("sstat", f'echo "$*" >>{tmp_path}/asked; wc -l <{tmp_path}/asked')
    monkeypatch.setenv(energy.VARIABLE, "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    meter = Meter(tmp_path, clock := ManualClock())
    meter.begin()
    clock.now += 1
    assert meter.end().parts == {"host": 1.0}
    assert "--jobs=77.batch" in (tmp_path / "asked").read_text()
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    Meter(tmp_path, clock).begin()
    assert (tmp_path / "asked").read_text().splitlines()[-1].endswith("--jobs=77.3")
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(BadInput, match="this is no job of Slurm"):
        Meter(tmp_path)


@pytest.mark.parametrize(("command", "wrong"), [(" ", "a command that prints joules"), ("'a", "No closing")])
def test_a_command_that_cannot_be_one_is_refused(tmp_path, monkeypatch, command, wrong):
    monkeypatch.setenv(energy.VARIABLE, command)
    with pytest.raises(BadInput, match=wrong):
        Meter(tmp_path)


def test_a_record_of_energy_is_beside_that_of_the_time():
    time = Record("scaling", "alignment_time", "s", "lower", (3.0, 4.0), {"aligner": "bwa-mem"})
    used = [{"joules": joules, "source": "powercap", "seconds": 3.0, "idle_watts": 40.0} for joules in (5, 6)]
    (record,) = energy.records(time, used)
    assert (record.metric, record.unit, record.better, record.samples) == ("energy", "J", "lower", (5, 6))
    assert record.parameters == {"aligner": "bwa-mem", "energy_source": "powercap"}
    assert record.placement_found == [{"energy": used}]
    read = from_dict(json.loads(json.dumps(record.to_dict())))
    assert (read.metric, read.samples, read.parameters) == (record.metric, record.samples, record.parameters)
    idler = [{**each, "idle_watts": 30.0} for each in used]
    for other in (time, replace(time, check="run", metric="time", parameters={"program": "sort"})):
        keys = {Case.of(*energy.records(other, each)).key for each in (used, idler)}
        assert len(keys) == 1  # what a host needs without the program identifies no case
    assert energy.records(time, [*used, {"joules": None, "unknown": "why"}]) == []
