# SPDX-License-Identifier: Apache-2.0
"""Golden configurations, deviations from them, and the changes of a host's configuration."""

from firsttouch.records import drift
from firsttouch.records.drift import Configuration
from firsttouch.records.schema import Record, to_frame

MODULES = {f"memory.modules.A{slot}": "32 GiB DDR4-3200, configured 2933 MT/s" for slot in range(4)}
UUID = "6fa459ea-ee8a-3ca4-894e-db77e160355e"


def record(host, settings, day=1, **fields):
    parameters = {"settings": settings, "provenance": {"memory.modules": "dmidecode"}}
    when = f"2026-01-{day:02}T12:00:00+00:00"
    return Record("configuration", "settings", "1", "neither", (1,), parameters, host=host, time=when, **fields)


def configured(host, source="dmidecode", **settings):
    """The configuration of one host: a common one with some settings changed."""
    usual = {"kernel.release": "5.15", "cpu.smt": "off", **MODULES}
    usual["kernel.command_line"] = f"BOOT_IMAGE=/v-{host} root=UUID={UUID} ro quiet ip=10.0.0.{host[1:]}"
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    texts = {name: value for name, value in {**usual, **changed}.items() if value is not None}
    return Configuration(0, texts, source)


def fleet(**different):
    """Nine hosts; *different* are the changed settings by host."""
    return {f"n{i}": configured(f"n{i}", **different.get(f"n{i}", {})) for i in range(1, 10)}


def test_what_is_of_one_host_is_no_drift():
    hosts = fleet()
    assert drift.drift(hosts).deviations == []
    assert drift.drift(hosts).golden["kernel.command_line"] == "ro quiet"
    same = drift.comparable("n1.site", {"a": f"n1 n1.site n12 xn1 {UUID} 00:1b:44:11:3a:b7 of 10.1.2.3"})
    assert same == {"a": "HOST HOST n12 xn1 UUID MAC of ADDRESS"}


def test_deviations_have_the_hosts_that_share_them():
    line = "ro nosmt root=/dev/sda2"
    changed = {"kernel__release": "5.14", "kernel__command_line": line}
    hosts = fleet(n1=changed, n7=changed, n3={"cpu__smt": "on"})
    apart = drift.drift(hosts)
    assert apart.golden["kernel.release"] == "5.15"
    assert {group: drift.described(its) for group, its in apart.by_hosts().items()} == {
        ("n3",): ["cpu.smt on (most: off)"],
        ("n1", "n7"): ["kernel.command_line: with nosmt, without quiet", "kernel.release 5.14 (most: 5.15)"],
    }
    assert {d.of for d in drift.drift(hosts).deviations} == {9}


def test_a_setting_that_cannot_be_read_is_no_deviation_but_a_missing_module_is():
    lost = {"memory__modules__A2": None, "cpu__smt": None}
    slow = {f"memory__modules__A{slot}": "32 GiB DDR4-3200, configured 2666 MT/s" for slot in range(4)}
    hosts = fleet(n2=lost, n5=slow, n8={"source": "edac", **dict.fromkeys(slow, None)})
    assert {group: drift.described(its) for group, its in drift.drift(hosts).by_hosts().items()} == {
        ("n2",): ["memory module A2: absent (most: 32 GiB DDR4-3200, configured 2933 MT/s)"],
        ("n5",): [
            "memory module A0, A1, A2 and 1 more: 32 GiB DDR4-3200, configured 2666 MT/s "
            "(most: 32 GiB DDR4-3200, configured 2933 MT/s)"
        ],
    }
    assert set(drift.differences("n2", hosts["n2"], configured("n2"))) == {"memory.modules.A2"}
    assert drift.differences("n8", hosts["n8"], configured("n8")) == {}


def test_what_differs_everywhere_is_no_drift():
    hosts = {f"n{i}": configured(f"n{i}", board__serial=str(i // 2)) for i in range(10)}
    assert drift.drift(hosts).deviations
    hosts = {f"n{i}": configured(f"n{i}", board__serial=str(i)) for i in range(10)}
    assert drift.drift(hosts).deviations == []
    assert "board.serial" not in drift.drift(hosts).golden
    # Two halves: one of them has to be golden.
    halves = {f"n{i}": configured(f"n{i}", firmware__version="12"[i % 2]) for i in range(10)}
    assert [(d.value, d.golden, len(d.hosts)) for d in drift.drift(halves).deviations] == [("2", "1", 5)]


def test_the_changes_of_a_host():
    records = [
        record("n1", {"firmware.version": "1", "kernel.command_line": "ip=1"}, day=1),
        record("n1", {"firmware.version": "1", "kernel.command_line": "ip=2"}, day=2),
        record("n1", {"firmware.version": "2"}, day=4),
        record("n1", {"firmware.version": "2", "cpu.smt": "on"}, day=5),
        record("n1", {"firmware.version": "1"}, day=6),
        record("n2", {"firmware.version": "1", "odd": 3, "none": ""}, day=1),
        Record("topology", "pus", "1", "neither", (4,), host="n3"),
    ]
    for source in (records, to_frame(records), drift.configured(records)):
        newest = drift.latest(source)["n1"]
        days = [(text, 1 + (time - newest.time) // 86_400_000) for time, text in newest.changes]
        assert days == [("firmware.version 1 -> 2", -1), ("firmware.version 2 -> 1", 1)]
        assert {host: c.settings["firmware.version"] for host, c in drift.latest(source).items()} == {
            "n1": "1",
            "n2": "1",
        }
    assert drift.latest(records)["n2"].settings == {"firmware.version": "1"}
    assert "n3" not in drift.latest(records)
    assert drift.latest([]) == drift.latest(drift.configured([])) == {}
    assert drift.drift({}).hosts == 0
