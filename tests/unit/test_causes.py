# SPDX-License-Identifier: Apache-2.0
"""Each cause is named by its signature, and no other cause is."""

import dataclasses
import random
import re

import pytest

from factories.memory_records import FAULTS
from firsttouch import paths
from firsttouch.benchmarks import kernel_settings
from firsttouch.judge.causes import parse, rules
from firsttouch.judge.judging import Undescribed, judge
from firsttouch.records.schema import Record
from firsttouch.systems.definition import load

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
    "one slow link": {"rate": lambda pu, bank, _: 0.6 if {pu, bank} == {1, 3} else 1.0},
    "frequency or power cap": {"wait": lambda *of: 0.8 if of[2] == 4096 else 0.95, "rate": alike(0.93)},
    "huge pages off": {"values": {"huge_pages": 0.0}, "wait": lambda *of: 1.0 if of[2] == 4096 else 0.8},
    "automatic NUMA balancing on": {
        "values": {"numa_balancing": 1.0},
        "rate": lambda pu, bank, _: 1.0 if pu == bank else 1.5,
        "wait": lambda *of: 1.0 if of[2] == 4096 else 0.93,
    },
    "wrong cpuset": {"values": {"pus": 48.0, "usable_share": 0.75}},
}


@pytest.fixture(scope="module")
def system():
    """The Opteron with references for counts only: the fleet judges all other metrics."""
    opteron = load("amd-opteron")
    return dataclasses.replace(opteron, references=tuple(r for r in opteron.references if r.check == "topology"))


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
    records = [dataclasses.replace(r, system=xeon.name) for r in host(values=values)]
    (verdict,) = judge(records, xeon)
    assert named(verdict) == ["hyperthreading off"]
    assert "32 of 64 PUs" in verdict.causes[0]


def test_firmware_that_interleaves_behind_an_unchanged_topology(system, fleet):
    rate = {"rate": lambda pu, bank, _: 0.5 if pu == bank else 1.6}
    verdict = {v.host: v for v in judge([*fleet, *host(**rate)], system)}["bad"]
    assert named(verdict) == ["banks interleaved by the firmware"]


@pytest.mark.parametrize(
    ("channels", "share"), [(2, 0.5), (3, 0.667), (4, 0.75), (8, 0.875), (12, 0.917), (8, 0.75)]
)
def test_one_or_two_of_some_channels(system, fleet, channels, share):
    # Two NUMA nodes share the channels of a package.
    facts = dataclasses.replace(system.facts, channels_per_package=2 * channels)
    system = dataclasses.replace(system, facts=facts)
    slow = host(rate=lambda _, bank, __: share if bank == 0 else 1.0)
    verdict = {v.host: v for v in judge([*fleet, *slow], system)}["bad"]
    assert verdict.causes == (
        f"memory channel missing: NUMA node 0: {share:.0%} of the bandwidth in all kernels, "
        "as without one of its memory channels",
    )


def test_a_loss_in_one_kernel_is_not_a_missing_channel(system, fleet):
    slow = host(rate=lambda _, bank, kernel: 0.5 if (bank, kernel) == (0, "copy") else 1.0)
    verdict = {v.host: v for v in judge([*fleet, *slow], system)}["bad"]
    assert (verdict.verdict, verdict.causes) == ("fail", ())


def test_every_rule_has_a_test_and_settings_that_exist():
    assert {rule.name for rule in rules()} == {*SIGNATURES, *FAULTS, "hyperthreading off"}
    rule_settings = {condition["setting"] for rule in rules() for condition in rule.when if "setting" in condition}
    # Busy PUs explain nothing: they make repetitions invalid.
    assert rule_settings == (kernel_settings.METRICS - {"busy_pus"}) | {"huge_pages_free", "clusters_agree"}


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


def slow_in_bank_0(shares):
    """Return the records of a host for each of *shares*, named after it, and the names."""
    names = [str(share) for share in shares]
    records = [
        r
        for name, share in zip(names, shares, strict=True)
        for r in host(name, rate=lambda _, bank, __, share=share: share if bank == 0 else 1.0)
    ]
    return records, names


def test_a_loss_that_no_channel_explains_has_no_cause(system, fleet):
    slow, names = slow_in_bank_0((0.95, 0.85, 0.75))
    verdicts = {v.host: v for v in judge([*fleet, *slow], system)}
    assert {name: verdicts[name].causes for name in names} == dict.fromkeys(names, ())


def test_a_loss_of_all_banks_is_not_a_missing_channel(system, fleet):
    rng = random.Random(1)  # noqa: S311
    near = {bank: rng.uniform(0.94, 0.955) for bank in range(NODES)}
    slow = {
        name: host(name, rate=lambda _, bank, __, level=level: near[bank] * level)
        for name, level in (("near", 1.0), ("half", 0.53))
    }
    verdicts = {v.host: v for v in judge([*fleet, *slow["near"], *slow["half"]], system)}
    assert {(verdicts[name].verdict, verdicts[name].causes) for name in slow} == {("fail", ())}


def test_noise_is_neither_a_frequency_cap_nor_a_slow_link(system, large_fleet):
    noisy = []
    for seed in range(5):
        rng = random.Random(seed)  # noqa: S311
        noisy += [
            r if r.check == "topology" else dataclasses.replace(r, samples=(r.value * (1 + rng.gauss(0, 0.08)),))
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
    facts = dataclasses.replace(
        system.facts,
        numa_nodes=4,
        numa_node_numbers=(0, 1, 2, 3),
        package_of_numa_node=(0, 0, 1, 1),
        distances=None,
    )
    bad = {v.host: v for v in judge([*fleet, *some], dataclasses.replace(system, facts=facts))}["bad"]
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


def test_without_facts_only_usual_channels_are_missing(large_fleet):
    is_named = {0.5: True, 0.75: True, 0.94: False, 0.7: False}
    slow, names = slow_in_bank_0(is_named)
    verdicts = {v.host: v for v in judge([*large_fleet, *slow], Undescribed("amd-opteron"))}
    for name, expected in zip(names, is_named.values(), strict=True):
        assert verdicts[name].verdict == "fail", name
        assert named(verdicts[name]) == ["memory channel missing"] * expected, name


def test_a_suspect_host_has_no_cause(system, fleet):
    few = [r for r in host(rate=lambda _, bank, __: 0.5 if bank == 0 else 1.0) if r.time < "2026-01-01T00:00:03"]
    bad = {v.host: v for v in judge([*fleet, *few], system)}["bad"]
    assert (bad.verdict, bad.causes, bad.cause) == ("suspect", (), "")


#: The rest of an entry of causes.toml -> the line and the reason why the file is ignored.
WRONG = {
    'text = "{nope}"\nwhen = [{ slow = true }]': ":3: unknown placeholder {nope}: its conditions give none",
    'text = "{pair}"\nwhen = [{ check = "latency", by = "bank", groups = "one", share = [0, 1] }]': ":3: unknown ",
    'text = "{share.a}"\nwhen = [{ setting = "busy_pus" }]': ":3: unknown placeholder {share.a}",
    'text = "{setting:d}"\nwhen = [{ setting = "busy_pus" }]': ":3: not a text with placeholders",
    'text = "{"\nwhen = [{ slow = true }]': ":3: not a text with placeholders",
    'text = ""\nwhen = [{ check = "latency" }]': ":4: a condition with the key 'check' needs the key 'by'",
    'text = ""\nwhen = [{ check = "latency", by = "bank", groups = "one" }]': ":4: .* needs the key 'share'",
    'text = ""\nwhen = [{ check = "latency", by = "bank", share = [0, 1] }]': ":4: .* needs the key 'groups'",
    'text = ""\nwhen = [{ count = "pus" }]': ":4: a condition with the key 'count' needs the key 'is'",
    'text = ""\nwhen = [{ slow = true, by = "bank" }]': ":4: a condition with the key 'slow' has no key 'by'",
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


def test_a_condition_gives_its_fields_to_a_text():
    fields = {"slow": "", "missing": "", "setting": "{setting}", "count": "{found} {expected} {which}"}
    for key, names in fields.items():
        condition = {"count": 'count = "pus", is = "one"', "slow": "slow = true"}.get(key, f'{key} = "x"')
        (rule,) = parse(f'[[cause]]\nname = "n"\ntext = "{names}"\nwhen = [{{ {condition} }}]\n', "causes.toml")
        assert rule.when[0].keys() >= {key}
