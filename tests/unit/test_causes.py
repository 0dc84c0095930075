# SPDX-License-Identifier: Apache-2.0
"""Each cause is named by its signature, and no other cause is."""

import random
import re

import pytest
from msgspec import structs

from factories.memory_records import FAULTS
from firsttouch import paths
from firsttouch.benchmarks import kernel_settings
from firsttouch.judge.causes import rules
from firsttouch.judge.judging import judge
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed, load

NODES = 4
#: Values of a good host: GB/s in the local bank and in others, ns in the cache and in memory.
LOCAL, REMOTE, CACHE, MEMORY = 40.0, 12.0, 1.5, 90.0
COUNTS = {"numa_nodes": 8.0, "pus": 64.0, "memory": 128.0}
HOST = {"huge_pages": 2.0, "numa_balancing": 0.0, "usable_share": 1.0, "busy_pus": 0.0, "frequency_share": 1.0}


def host(name="bad", *, values=None, rate=lambda pu, bank, kernel: 1.0, wait=lambda pu, bank, size: 1.0):
    """Return the records of a host with five repetitions; *rate* and *wait* return the share of its full speed."""
    records = []

    def add(check, metric, unit, better, value, **case):
        for number in range(5):
            records.append(
                Record(
                    *(check, metric, unit, better, (value,)),
                    parameters=case,
                    host=name,
                    system="amd-opteron",
                    time=f"2026-01-01T00:00:{number:02d}",
                )
            )

    for metric, value in (COUNTS | HOST | (values or {})).items():
        add("topology", metric, "1" if metric != "memory" else "GiB", "neither", value)
    for pu in range(NODES):
        for bank in range(NODES):
            place = {"program": "firsttouch-probe", "pu_nodes": [pu], "bank": bank}
            for kernel in ("copy", "triad"):
                good = LOCAL if pu == bank else REMOTE
                value = good * rate(pu, bank, kernel)
                add("bandwidth", f"{kernel}_bandwidth", "GB/s", "higher", value, **place, kernel=kernel)
            for size, good in ((4096, CACHE), (1 << 27, MEMORY)):
                value = good / wait(pu, bank, size)
                add("latency", "random_latency", "ns", "lower", value, **place, size_bytes=size)
    return records


def alike(share):
    return lambda *_: share


#: cause -> the arguments of :func:`host` for a host that has it.
SIGNATURES = {
    "memory channel missing": {"rate": lambda _, bank, __: 0.5 if bank == 2 else 1.0},
    "banks interleaved by the firmware": {"values": {"numa_nodes": 1.0}},
    "fewer NUMA nodes": {"values": {"numa_nodes": 4.0}},
    "more NUMA nodes": {"values": {"numa_nodes": 16.0}},
    "slow link": {"rate": lambda pu, bank, _: 0.6 if {pu, bank} == {1, 3} else 1.0},
    "frequency or power cap": {"wait": lambda *of: 0.8 if of[2] == 4096 else 0.95, "rate": alike(0.93)},
    "huge pages off": {"values": {"huge_pages": 0.0}, "wait": lambda *of: 1.0 if of[2] == 4096 else 0.8},
    "automatic NUMA balancing on": {
        "values": {"numa_balancing": 1.0},
        "rate": lambda pu, bank, _: 1.0 if pu == bank else 1.5,
        "wait": lambda *of: 1.0 if of[2] == 4096 else 0.93,
    },
    "slower memory on all NUMA nodes": {"rate": alike(0.92)},
    "wrong cpuset": {"values": {"pus": 48.0, "usable_share": 0.75}},
}


@pytest.fixture(scope="module")
def system():
    """The Opteron with references for counts only: the fleet judges all other metrics."""
    opteron = load("amd-opteron")
    return structs.replace(opteron, references=tuple(r for r in opteron.references if r.check == "topology"))


@pytest.fixture(scope="module")
def fleet():
    return [r for number in range(8) for r in host(f"n{number}")]


@pytest.fixture(scope="module")
def large_fleet(fleet):
    """Good hosts enough to judge a bad one of each kind beside them."""
    return [*fleet, *(r for number in range(8, 16) for r in host(f"n{number}"))]


def named(verdict):
    return [cause.split(": ")[0] for cause in verdict.causes]


def test_a_cause_is_named_by_its_signature(system, large_fleet):
    bad_hosts = [r for cause, signature in SIGNATURES.items() for r in host(cause, **signature)]
    verdicts = {v.host: v for v in judge([*large_fleet, *bad_hosts], system)}
    for cause, signature in SIGNATURES.items():
        bad = verdicts.pop(cause)
        assert bad.verdict == "fail", cause
        expected = {cause, "fewer NUMA nodes"} if "numa_nodes" in str(signature) else {cause}
        assert cause in named(bad)[:2]
        assert set(named(bad)) <= expected
        assert bad.evidence[0].startswith(f"possible cause: {named(bad)[0]}")
    assert len(verdicts) == 16
    assert {(v.verdict, v.causes) for v in verdicts.values()} == {("pass", ())}


def test_hyperthreading_off(fleet):
    xeon = load("intel-xeon")
    values = {"numa_nodes": 4.0, "pus": 32.0}
    records = [structs.replace(r, system=xeon.name) for r in host(values=values)]
    (verdict,) = judge(records, xeon)
    assert named(verdict) == ["hyperthreading off"]
    assert "32 of 64 PUs" in verdict.causes[0]


def test_firmware_that_interleaves_behind_an_unchanged_topology(system, fleet):
    rate = {"rate": lambda pu, bank, _: 0.5 if pu == bank else 1.6}
    verdict = {v.host: v for v in judge([*fleet, *host(**rate)], system)}["bad"]
    assert named(verdict) == ["banks interleaved by the firmware"]


def with_channels(system, channels):
    # Two NUMA nodes share the channels of a package.
    return structs.replace(system, facts=structs.replace(system.facts, channels_per_package=2 * channels))


@pytest.mark.parametrize(
    ("channels", "share", "working"), [(2, 0.5, 1), (3, 0.667, 2), (12, 0.917, 11), (8, 0.75, 6)]
)
def test_some_of_the_channels(system, fleet, channels, share, working):
    slow = host(rate=lambda _, bank, __: share if bank == 0 else 1.0)
    verdict = {v.host: v for v in judge([*fleet, *slow], with_channels(system, channels))}["bad"]
    assert verdict.causes == (
        f"memory channel missing: NUMA node 0: {100 * share:.1f} % of the bandwidth in all kernels, "
        f"as with about {working} of {channels} memory channels",
    )


def test_a_host_of_one_bank(fleet):
    slow = host(rate=alike(0.5))
    hosts = [
        r for r in [*fleet, *slow] if r.parameters.get("bank", 0) == 0 and r.parameters.get("pu_nodes", [0]) == [0]
    ]
    verdict = {v.host: v for v in judge(hosts, Undescribed("amd-opteron"))}["bad"]
    assert verdict.causes == (
        "memory channel missing: NUMA node 0: 50.0 % of the bandwidth in all kernels, "
        "as with fewer memory channels than the others (the system's file has no number of channels)",
    )


MODULE = "16 GiB DDR3-1600, configured 1600 MT/s, HP"
MODULES = {f"memory.modules.PROC  {p} DIMM  {d}": MODULE for p in (1, 2) for d in (1, 3, 6, 8)}


def configured(name, modules):
    settings = {"settings": modules, "provenance": {"memory.modules": "dmidecode"}}
    return Record("configuration", "settings", "1", "neither", (1,), settings, host=name, system="amd-opteron")


def changed(slots, text=None):
    """Return the modules of a host with another text, or none, in *slots*."""
    kept = {name: value for name, value in MODULES.items() if name.removeprefix("memory.modules.") not in slots}
    return kept if text is None else MODULES | {f"memory.modules.{slot}": text for slot in slots}


SLOTS = [f"PROC  {p} DIMM  {d}" for p in (1, 2) for d in (3, 6, 8)]


@pytest.mark.parametrize(
    ("modules", "cause"),
    [
        (
            changed(SLOTS),
            "memory modules missing: 6 of 8 modules: slots PROC 1 DIMM 3, 6, 8, PROC 2 DIMM 3, 6, 8 are empty "
            "here, filled on 8 siblings",
        ),
        (
            changed(SLOTS[:1]),
            "memory modules missing: 1 of 8 modules: slot PROC 1 DIMM 3 is empty here, filled on 8 ",
        ),
        (
            changed(SLOTS[:2], "16 GiB DDR3-1066, HP"),
            f"other memory modules: slots PROC 1 DIMM 3, 6: 16 GiB DDR3-1066, HP here, {MODULE} on 8 ",
        ),
        (
            dict.fromkeys(MODULES, "16 GiB DDR3-1600, configured 1333 MT/s, HP"),
            "other memory modules: all 8 modules: configured 1333 MT/s instead of configured 1600 MT/s on 8 ",
        ),
        (MODULES, "memory channel missing: "),
    ],
)
def test_the_modules_of_the_siblings_name_the_slots(system, fleet, modules, cause):
    configurations = [configured(f"n{number}", MODULES) for number in range(8)]
    slow = host(rate=lambda _, bank, __: 0.5)
    verdicts = {v.host: v for v in judge([*fleet, *slow, *configurations, configured("bad", modules)], system)}
    assert verdicts["bad"].causes[0].startswith(cause)
    assert {v.causes for name, v in verdicts.items() if name != "bad"} == {()}


def test_empty_slots_are_named_for_a_suspect_host(system, fleet):
    configurations = [configured(f"n{number}", MODULES) for number in range(8)]
    few = [r for r in host(rate=lambda _, bank, __: 0.5 if bank == 0 else 1.0) if r.time < "2026-01-01T00:00:03"]
    records = [*fleet, *few, *configurations, configured("bad", changed(SLOTS[:1]))]
    verdict = {v.host: v for v in judge(records, system)}["bad"]
    assert (verdict.verdict, named(verdict)) == ("suspect", ["memory modules missing"])


def test_modules_that_explain_no_loss(system, fleet):
    slots = {f"memory.modules.P{p}-DIMM{c}1": f"16 GiB, channel p{p} {c}" for p in range(1, 5) for c in "AB"}
    lacking = {name: text for name, text in slots.items() if "P2-DIMMA1" not in name}
    configurations = [configured(f"n{number}", slots) for number in range(8)]
    # The slot is of NUMA nodes 2 and 3; the loss is in bank 0, or no loss of memory; or a good host lacks it, too.
    elsewhere = host(rate=lambda _, bank, __: 0.4 if bank == 0 else 1.0)
    caches = host(wait=lambda *of: 0.8 if of[2] == 4096 else 1.0)
    same = host(rate=lambda _, bank, __: 0.4 if bank == 2 else 1.0)
    for slow, others in ((elsewhere, slots), (caches, slots), (same, lacking)):
        records = [*fleet, *slow, *configurations[1:], configured("n0", others), configured("bad", lacking)]
        verdict = {v.host: v for v in judge(records, system)}["bad"]
        assert verdict.verdict == "fail"
        assert "memory modules missing" not in named(verdict)
    records = [*fleet, *same, *configurations, configured("bad", lacking)]
    verdict = {v.host: v for v in judge(records, system)}["bad"]
    assert verdict.causes == (
        "memory modules missing: 1 of 8 channels: slot P2-DIMMA1 is empty here, filled on 8 siblings",
    )


def computed(name, shares):
    """Return records of a compute-bound metric of each processor."""
    return [
        Record(
            *("compute", "rate", "GFLOP/s", "higher", (900.0 * share,), {"cpu": cpu}),
            host=name,
            system="amd-opteron",
            time=f"2026-01-01T00:00:{number:02d}",
        )
        for cpu, share in enumerate(shares)
        for number in range(5)
    ]


@pytest.mark.parametrize(
    ("shares", "rate", "cause"),
    [
        ((0.87, 0.93), 1.0, "cooling or power fault"),
        ((1.0, 0.88), 0.99, "cooling or power fault"),
        ((0.5, 0.5), 1.0, None),
        ((0.9, 0.9), 0.75, None),
    ],
)
def test_compute_bound_metrics_that_fall_without_memory(fleet, shares, rate, cause):
    hosts = [*fleet, *(r for number in range(8) for r in computed(f"n{number}", (1.0, 1.0)))]
    hosts += [r for r in host(rate=alike(rate)) if r.check != "latency"]
    verdict = {v.host: v for v in judge([*hosts, *computed("bad", shares)], Undescribed("amd-opteron"))}["bad"]
    assert verdict.verdict == "fail"
    assert (named(verdict) == [cause]) if cause else ("cooling or power fault" not in named(verdict))


def test_every_rule_has_a_test_and_settings_that_exist():
    assert {rule.name for rule in rules()} == {
        *(*SIGNATURES, *FAULTS, "hyperthreading off"),
        *("memory modules missing", "other memory modules", "cooling or power fault", "wrong answers"),
        "uncorrected errors",  # tests/drills
    }
    rule_settings = {c.setting for rule in rules() for c in rule.when if hasattr(c, "setting")}
    # Busy PUs explain nothing: they make repetitions invalid.
    assert rule_settings == (kernel_settings.METRICS - {"busy_pus"}) | {"huge_pages_free"}


def test_a_busy_host_does_not_explain_a_wrong_count_and_kernel_settings_fail_no_host(system, fleet):
    busy = host("busy", values={"pus": 48.0, "busy_pus": 3.0})
    tuned = host("tuned", values={"huge_pages": 0.0, "numa_balancing": 1.0})
    verdicts = {v.host: v for v in judge([*fleet, *busy, *tuned], system)}
    assert (verdicts["busy"].verdict, verdicts["busy"].causes) == ("fail", ())
    assert (verdicts["tuned"].verdict, verdicts["tuned"].causes) == ("pass", ())


class TestSettings:
    def test_of_a_stored_host(self, tmp_path):
        files = {
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
            "proc/sys/kernel/numa_balancing": "1",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2000000",
            "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "2500000",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text + "\n")
        settings = {r.metric: r.value for r in kernel_settings.records(tmp_path)}
        # Without /proc/stat a record of 0 busy PUs is written, which replaces an earlier one.
        assert settings == {"huge_pages": 0.0, "numa_balancing": 1.0, "frequency_share": 0.8, "busy_pus": 0.0}

    def test_of_this_host(self):
        settings = {r.metric: r.value for r in kernel_settings.records()}
        assert set(settings) <= kernel_settings.METRICS
        assert 0 < settings["usable_share"] <= 1
        assert settings["busy_pus"] >= 0


def test_noise_is_neither_a_frequency_cap_nor_a_slow_link(system, large_fleet):
    noisy = []
    for seed in range(5):
        rng = random.Random(seed)  # noqa: S311
        noisy += [
            r if r.check == "topology" else structs.replace(r, samples=(r.value * (1 + rng.gauss(0, 0.08)),))
            for r in host(f"noisy{seed}")
        ]
    verdicts = {v.host: v for v in judge([*large_fleet, *noisy], system)}
    assert [verdicts[f"noisy{seed}"].causes for seed in range(5)] == [()] * 5


@pytest.mark.parametrize("node", [0, 3])
def test_a_dead_numa_node_is_named(system, fleet, node):
    some = [
        r
        for r in host(values={"numa_nodes": 3.0})
        if node not in {r.parameters.get("bank"), *r.parameters.get("pu_nodes", ())}
    ]
    facts = structs.replace(
        system.facts,
        numa_nodes=4,
        numa_node_numbers=(0, 1, 2, 3),
        package_of_numa_node=(0, 0, 1, 1),
        distances=None,
    )
    bad = {v.host: v for v in judge([*fleet, *some], structs.replace(system, facts=facts))}["bad"]
    assert bad.verdict == "fail"
    assert f"NUMA node {node} is missing: 3 NUMA nodes instead of 4" in bad.causes[0]


#: Hosts that have no cause: the arguments of :func:`host`.
UNLIKE_ANY = {
    "5 % in all banks": {"rate": alike(0.95)},
    "two banks": {"rate": lambda _, bank, __: 0.75 if bank in {0, 2} else 1.0},
    "one kernel of a bank": {"rate": lambda _, bank, kernel: 0.75 if (bank, kernel) == (0, "copy") else 1.0},
    "a bank, and another one a little": {"rate": lambda _, bank, __: {0: 0.5, 1: 0.95}.get(bank, 1.0)},
    "a bank, and the cores of another NUMA node": {
        "rate": lambda _, bank, __: 0.75 if bank == 0 else 1.0,
        "wait": lambda pu, _, size: 0.93 if (pu, size) == (3, 4096) else 1.0,
    },
    "some transfers of a link": {
        "rate": lambda pu, bank, kernel: 0.9 if {pu, bank} == {1, 3} and kernel == "copy" else 1.0
    },
    "most caches": {"wait": lambda pu, bank, size: 0.93 if size == 4096 and (pu, bank) != (0, 3) else 1.0},
}


def test_what_fits_no_signature_entirely_has_no_cause(system, large_fleet):
    bad = [r for name, how in UNLIKE_ANY.items() for r in host(name, **how)]
    verdicts = {v.host: v for v in judge([*large_fleet, *bad], system)}
    assert {name: (verdicts[name].verdict, named(verdicts[name])) for name in UNLIKE_ANY} == dict.fromkeys(
        UNLIKE_ANY, ("fail", [])
    )
    assert {verdicts[name].reason().rsplit("; ", 1)[1] for name in UNLIKE_ANY} == {"no known signature"}
    assert "no known signature" in verdicts["two banks"].line()


def test_a_suspect_host_has_no_cause(system, fleet):
    few = [r for r in host(rate=lambda _, bank, __: 0.5 if bank == 0 else 1.0) if r.time < "2026-01-01T00:00:03"]
    bad = {v.host: v for v in judge([*fleet, *few], system)}["bad"]
    assert (bad.verdict, bad.causes, bad.cause) == ("suspect", (), "")


#: The rest of an entry of causes.toml -> the line and the reason why the file is ignored.
WRONG = {
    'text = "{nope}"\nwhen = [{ slow = true }]': ":3: unknown placeholder {nope}: its conditions give none",
    'text = "{pair}"\nwhen = [{ check = "latency", by = "bank", groups = "any", share = [0, 1] }]': ":3: unknown ",
    'text = "{share.a}"\nwhen = [{ setting = "busy_pus" }]': ":3: unknown placeholder {share.a}",
    'text = "{setting:d}"\nwhen = [{ setting = "busy_pus" }]': ":3: not a text with placeholders",
    'text = "{"\nwhen = [{ slow = true }]': ":3: not a text with placeholders",
    'text = ""\nwhen = [{ check = "latency" }]': ":4: key 'by'",
    'text = ""\nwhen = [{ check = "latency", by = "bank", groups = "any" }]': ":4: key 'share'",
    'text = ""\nwhen = [{ check = "latency", by = "bank", share = [0, 1] }]': ":4: key 'groups'",
    'text = ""\nwhen = [{ count = "pus" }]': ":4: key 'is'",
    'text = ""\nwhen = [{ slow = true, by = "bank" }]': ":4: unknown key 'by'",
    'text = ""\nwhen = [{ below = 5 }]': ":4: a condition needs one of the keys count, slow",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_a_wrong_file_of_a_site_is_ignored_with_a_line(monkeypatch, tmp_path, capsys, text, message):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    file = paths.config() / "causes.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[[cause]]\nname = "of the site"\n{text}\n')
    rules.cache_clear()
    try:
        names = [rule.name for rule in rules()]
    finally:
        rules.cache_clear()
    assert names
    assert "of the site" not in names
    assert re.search(f"this file is ignored: {re.escape(str(file))}{message}", capsys.readouterr().err)
