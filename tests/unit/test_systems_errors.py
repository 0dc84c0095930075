# SPDX-License-Identifier: Apache-2.0
"""Wrong system files: every message has file, line and reason."""

import copy

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firsttouch import paths as folders
from firsttouch.errors import BadInput
from firsttouch.systems.definition import load

BASE = """\
# SPDX-License-Identifier: Apache-2.0
name: host
description: "a host"
hostnames: ["n[0-9]+"]
facts:
  processor: "a processor"
  packages: 2
  numa_nodes: 4
  cores_per_numa_node: 8
  threads_per_core: 2
  memory_per_numa_node: "16 GiB"
  memory:
    transfer_rate: "3200 MT/s"
    channels_per_package: 8
  distances:
    matrix: [[10, 12, 20, 20], [12, 10, 20, 20], [20, 20, 10, 12], [20, 20, 12, 10]]
partitions:
  - name: default
    scheduler: local
references:
  - check: bandwidth
    metric: copy_bandwidth
    parameters: {program: stream, bank: 0}
    value: "11 GB/s"
    tolerance: {lower: "-10 %"}
    source: "measured"
  - check: placement
    metric: alignment_time
    parameters: {dataset: gcat, threads: 8}
    value: "2 min"
    tolerance: {lower: "-1 %", upper: "5 %"}
    error: "4 %"
    source: "measured"
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        file = tmp_path / "host.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def line_of(text, part):
    return text[: text.index(part)].count("\n") + 1


def test_the_base_is_fine(write):
    system = load(write(BASE))
    times = {"dataset": "gcat", "threads": 8}
    assert system.reference("placement", "alignment_time", times).as_tuple() == (120.0, -0.01, 0.05, "s")
    assert system.reference("scaling", "alignment_time", times) is None


@pytest.mark.parametrize(
    ("old", "new", "at", "reason"),
    [
        ("  numa_nodes: 4\n", "", "facts:", "key 'numa_nodes' is missing in facts"),
        ("  packages: 2", "  packages: 2\n  cores: 3", "  cores: 3", "unknown key 'cores' in facts: known are"),
        ("  packages: 2", "  packages: 2\n  packages: 2", "  packages: 2\n  numa", "duplicate key 'packages'"),
        ("  packages: 2", "  packages: two", "  packages: two", "'two' is not a whole number from 1 to 65536"),
        ("  packages: 2", "  packages: .nan", "  packages: .n", "not a finite number"),
        ("  packages: 2", "  packages: 2020-02-31", "  packages: 20", "cannot be read"),
        ("  packages: 2", "  packages: 2\n  1: 2", "  1: 2", "a key that is not text"),
        ('"16 GiB"', '"16 Gib"', "  memory_per", "'16 Gib' is not a quantity of bytes"),
        ('"16 GiB"', '"16"', "  memory_per", "'16' has no unit, such as GiB"),
        ('"16 GiB"', '["16 GiB"]', "  memory_per", "has 1 entries for 4 NUMA nodes"),
        ('"3200 MT/s"', '"3200 MHz"', "    transfer", "not a quantity of transfers per second"),
        ("[20, 20, 12, 10]", "[20, 20, 12]", "    matrix", "is not 4 x 4"),
        ("  packages: 2", "  packages: 2\n  package_of_numa_node: [0, 1, 2, 0]", "  package_of", "from 0 to 1"),
        ("  packages: 2", "  packages: 2\n  numa_node_numbers: [0, 2, 1, 3]", "  numa_node_numbers", "ascending"),
        ('hostnames: ["n[0-9]+"]', "hostnames: []", "hostnames", "hostnames is empty"),
        ("scheduler: local", "scheduler: pbs", "    scheduler", "partitions[0].scheduler: 'pbs'"),
        ("name: host", "name: other", "name: other", "name is 'other' in a file that is called host.yaml"),
        ("check: bandwidth", "check: bandwith", "  - check: bandwith", "unknown check 'bandwith'"),
        ("program: stream", "progam: stream", "    parameters: {progam", "unknown parameter 'progam' of"),
        ("bank: 0", "relation: remote", "    parameters: {program", "unknown relation 'remote'"),
        ("bank: 0", "relation: {any: [near, far]}", "    parameters: {program", "unknown relation 'far'"),
        ("bank: 0", "bank: {all: [0]}", "    parameters: {program", "unknown key 'all'"),
        ("bank: 0", "bank: {any: []}", "    parameters: {program", "bank.any is empty"),
        ('"11 GB/s"', '"0 GB/s"', '    value: "0', "not above 0"),
        ('    value: "11 GB/s"\n', "", "  - check: bandwidth", "needs either a value or a fact"),
        ('    value: "11 GB/s"', "    fact: memory", "    fact", "'memory' is not in the metric's unit, GB/s"),
        ('lower: "-10 %"', 'lower: "10 %"', "    tolerance", "not between -100 % and 0 %"),
        ('lower: "-10 %"', "lower: -10", "    tolerance", "tolerance.lower"),
        ('"2 min"', '"2 GB"', '    value: "2 GB', "not a quantity of seconds"),
        ('"4 %"', '"-4 %"', "    error", "error"),
    ],
)
def test_each_error_has_its_line_and_reason(write, old, new, at, reason):
    assert old in BASE
    text = BASE.replace(old, new, 1)
    file = write(text)
    with pytest.raises(BadInput) as caught:
        load(file)
    message = str(caught.value)
    assert reason in message
    assert message.startswith(f"{file}:{caught.value.line}: ")
    assert "\n" not in message
    assert caught.value.line == line_of(text, at)


def test_the_first_of_several_errors_by_line(write):
    text = BASE.replace("scheduler: local", "scheduler: pbs").replace("packages: 2", "packages: x")
    with pytest.raises(BadInput) as caught:
        load(write(text))
    assert caught.value.line == line_of(text, "  packages")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("# only a comment\n", 1),
        ("just text\n", 1),
        ("name: a\nname: b\n", 2),
        ("name: a\nfacts: [1\n", 3),
        ("name: a\nfacts: \x00\n", 2),
        (b"name: a\nfacts: \xff\n", 2),
        ("a: &a [*a]\n", None),
        ("name: a\n---\nname: b\n", 2),
        ('name: "\\ud800"\n', 1),
        ("? [a]\n: 1\n", 1),
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
        ), None),
    ],
)  # fmt: skip
def test_what_is_no_system_file_at_all(write, text, line):
    with pytest.raises(BadInput) as caught:
        load(write(text))
    if line is not None:
        assert caught.value.line == line


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ("{program: stream, bank: 0}", True),
        ("{program: stream, bank: 1}", False),
        ("{threads: 8, bank: 0}", True),
        ("{program: likwid-bench, threads: 8}", False),
        ("{program: stream, bank: 0, threads: 8}", False),
        ("{bank: 0}", False),
        ("{program: stream, bank: {any: [1, 2]}}", False),
        ("{program: stream, bank: {any: [1, 0]}}", True),
    ],
)
def test_two_references_for_one_record_need_a_different_number_of_parameters(write, parameters, refused):
    second = f"""\
  - check: bandwidth
    metric: [copy_bandwidth, add_bandwidth]
    parameters: {parameters}
    value: "9 GB/s"
    tolerance: {{}}
    source: "another"
"""
    file = write(BASE + second)
    if refused:
        with pytest.raises(BadInput, match="matches the same records") as caught:
            load(file)
        assert caught.value.line == BASE.count("\n") + 1
    else:
        reference = load(file).reference(
            "bandwidth", "copy_bandwidth", {"program": "stream", "bank": 0, "threads": 8}
        )
        assert reference.value == (9 if "bank: 0, threads" in parameters else 11)


def test_relation_and_pair_are_told_apart(write):
    pair = """\
  - {check: bandwidth, metric: add_bandwidth, parameters: {pu_nodes: [0], bank: 1}, value: "1 GB/s",
     tolerance: {}, source: "x"}
  - {check: bandwidth, metric: add_bandwidth, parameters: {relation: near, program: p}, value: "2 GB/s",
     tolerance: {}, source: "x"}
"""
    system = load(write(BASE + pair))
    assert system.facts.relation(0, 1) == "neighbour"
    given_ = {"pu_nodes": [0], "bank": 1, "program": "p"}
    assert system.reference("bandwidth", "add_bandwidth", given_).value == 1
    assert system.reference("bandwidth", "add_bandwidth", given_ | {"bank": 2}).value == 2
    with pytest.raises(BadInput, match="matches the same records"):
        load(write(BASE + pair.replace("near", "neighbour")))


SHIPPED = {f.stem: yaml.safe_load(f.read_text()) for f in folders.SYSTEMS.glob("*-*.yaml")}


def paths(value, where=()):
    yield where
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from paths(child, (*where, key))


def at(data, where):
    for step in where:
        data = data[step]
    return data


def dump(data):
    # One line per leaf: the line identifies the leaf.
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=False, width=10**9)


def refusal(file):
    """Return the BadInput that *file* raises, None if it loads; any other exception is a bug."""
    try:
        load(file)
    except BadInput as error:
        return error
    return None


QUICK = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(st.data())
def test_any_mutation_is_refused_with_its_line_or_loads(tmp_path, data):
    name = data.draw(st.sampled_from(sorted(SHIPPED)))
    mutant = copy.deepcopy(SHIPPED[name])
    where = data.draw(st.sampled_from(sorted(paths(mutant), key=repr)))
    kind = data.draw(st.sampled_from(["drop", "unknown key", "text", "number", "list", "mapping", "null"]))
    target = at(mutant, where)
    if kind == "unknown key" and isinstance(target, dict):
        target["MUTANT"] = 1
    elif where:
        holder = at(mutant, where[:-1])
        if kind == "drop":
            del holder[where[-1]]
        else:
            new = {"number": 424242, "list": ["MUTANT"], "mapping": {"MUTANT": 1}, "null": None}
            holder[where[-1]] = new.get(kind, "MUTANT")
    text = dump(mutant)
    file = tmp_path / f"{name}.yaml"
    file.write_text(text)
    error = refusal(file)
    if error is not None:
        lines = text.splitlines()
        assert error.file == file
        assert 1 <= error.line <= len(lines)
        if "MUTANT" in text and where[:1] != ("facts",):
            # A wrong value of the facts may be reported at another one, such as a matrix that is not square.
            marked = next(i for i, line in enumerate(lines, start=1) if "MUTANT" in line)
            # A list or a mapping is below its key.
            assert error.line in {marked, marked - 1}, f"{error}\n{text}"


@QUICK
@given(st.data())
def test_any_text_is_refused_or_loads(tmp_path, data):
    start = data.draw(st.integers(0, len(BASE)))
    end = data.draw(st.integers(start, min(len(BASE), start + 40)))
    new = data.draw(st.one_of(st.text(max_size=12), st.sampled_from(["<<: *a", "&a ", "!!binary x", "- ", ": "])))
    file = tmp_path / "host.yaml"
    file.write_text(BASE[:start] + new + BASE[end:], encoding="utf-8", errors="surrogatepass")
    error = refusal(file)
    if error is not None:
        assert error.line >= 1
        assert len(str(error).splitlines()) == 1
