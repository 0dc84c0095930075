"""Hostile input: topologies as hwloc XML, stored roots, and arguments of a plan."""
# ruff: noqa: E501 (a case is one line)

import os

import pytest

from hostile import ROOT, Case

STORED = ROOT / "tests" / "golden"
GOOD = (STORED / "lstopo_synthetic.xml").read_text()
NODE = '<object type="NUMANode" os_index="{}" cpuset="{}" local_memory="{}"/>'
PU = '<object type="PU" os_index="{}" cpuset="{}"/>'
OWN = NODE.format(0, "0x3", 1 << 30)
PLAN = ["plan", "--aligner", "bwa-mem"]


def document(content="", *, after="", attributes='cpuset="0x3" nodeset="0x1"', node=OWN):
    pus = PU.format(0, "0x1") + PU.format(1, "0x2")
    return (
        f'<topology version="2.0"><object type="Machine" {attributes}>{node}{pus}{content}</object>'
        f"{after}</topology>"
    )


def distances(values, indexes="0 1", kind='type="NUMANode" nbobjs="2" kind="5" indexing="os"'):
    return f"<distances2 {kind}><indexes>{indexes}</indexes><u64values>{values}</u64values></distances2>"


TWO = document(NODE.format(1, "0x2", 1 << 30), attributes='cpuset="0x3" nodeset="0x3"')
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)
XXE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'

#: Name, the XML, a pattern of the message; all are refused.
REFUSED = [
    ("text", "hello", "not XML"),
    ("cut", GOOD[: len(GOOD) // 2], "not XML"),
    ("no machine", '<topology version="2.0"/>', "no Machine"),
    ("version 1", GOOD.replace('version="2.0"', 'version="1.0"'), "version 1"),
    ("entity bomb", BOMB + "]><topology>&j;</topology>", "x.xml"),
    ("external entity", XXE + document("&a;"), "not XML"),
    ("nested 100,000 times", document('<object type="Group">' * 100_000 + "</object>" * 100_000), "nested"),
    ("no NUMA node", document(node=""), "no NUMA nodes"),
    ("two PUs of one number", document(PU.format(1, "0x2")), "PU 1 occurs more than once"),
    ("two NUMA nodes of one number", document(NODE.format(0, "0x2", 1)), "NUMANode 0 occurs more than once"),
    ("negative memory", document(node=NODE.format(0, "0x3", -5)), "NUMANode 0: local_memory is '-5'"),
    ("memory of 5,000 digits", document(node=NODE.format(0, "0x3", "9" * 5000)), "local_memory is '9+'"),
    ("memory in other digits", document(node=NODE.format(0, "0x3", "\u0661")), "local_memory"),
    ("PU without a number", document('<object type="PU" cpuset="0x1"/>'), "PU of number ''"),
    ("PU of a negative number", document(PU.format(-1, "0x1")), "PU of number '-1'"),
    ("PU of a squared number", document(PU.format("\u00b2", "0x1")), "PU of number"),
    ("NUMA node of a huge number", document(NODE.format(10**18, "0x1", 1)), "NUMANode of number"),
    ("infinite bitmap", document(NODE.format(1, "0xf...f", 1)), "not an hwloc bitmap"),
    ("bitmap without words", document(attributes='cpuset="3" nodeset="0x1"'), "not an hwloc bitmap"),
    ("negative distance", TWO.replace("</topology>", distances("10 -5 20 10") + "</topology>"), "distances2.*-5"),
    ("distance as a word", TWO.replace("</topology>", distances("10 far 20 10") + "</topology>"), "far"),
    ("cache of negative size", document('<object type="L2Cache" cache_type="0" depth="2" cache_size="-1"/>'), "L2Cache"),
    ("pages of negative size", document(node=NODE.format(0, "0x3", 1)[:-2] + '><page_type size="-1"/></object>'), "size"),
]  # fmt: skip

#: Name, the XML, the exit status of a plan, a pattern of its output.
PLANNED = [
    ("no memory stated", document(node=NODE.format(0, "0x3", 0)), 2, "x.xml: no NUMA node has memory here"),
    ("no PU allowed", document(attributes='cpuset="0x3" allowed_cpuset="0x8" nodeset="0x1"'), 2, "x.xml: no PU that"),
    ("PUs without a NUMA node", document(PU.format(9, "0x200"), attributes='cpuset="0x203" nodeset="0x1"'), 0, "PUs 9"),
    ("a cpuset of absent PUs", document(node=NODE.format(0, "0xffffffff", 1 << 40)), 0, r"2x\d+-bound"),
    ("overlapping NUMA nodes", TWO, 0, r"2x\d+-bound"),
    ("distances of other nodes", TWO.replace("</topology>", distances("1 1 1 1", "7 8") + "</topology>"), 0, r"2x\d"),
    ("memory as a cache", document('<object type="MemCache" cache_type="0" depth="1" cache_size="9999"/>'), 0, r"2x\d"),
]  # fmt: skip


#: Name, the maker of the root, a pattern of the message; all are refused.
ROOTS = [
    ("absent", {}, "sys/ folder"),
    ("loop of links", lambda folder: (folder / "root").symlink_to("root"), "sys/ folder"),
    ("FIFO", lambda folder: os.mkfifo(folder / "root"), "sys/ folder"),
    ("text", {"root": "text"}, "sys/ folder"),
    ("sys is a file", {"root/sys": ""}, "sys/ folder"),
    (
        "only an empty sys",
        {"root/sys/none": ""},
        "firsttouch-probe topology failed|not an hwloc topology|no NUMA nodes",
    ),
]

#: The arguments of a plan on a sound topology, and a pattern of the message; all are refused.
ARGUMENTS = [
    (["--threads", "0"], "whole number of at least 1"),
    (["--threads", "65"], "--threads 65: .*1 to 64 PUs"),
    (["--index-size", "-1"], "index-size"),
    (["--index-size", "1e999"], "index-size"),
    (["--policies", "original,,interleave"], "no policy ''"),
    (["--aligner", "../../etc/passwd"], "aligner"),
    (["--fsroot", "root"], "not allowed with argument"),
]

CASES = [
    *(Case(f"xml: {name}", [*PLAN, "--xml", "x.xml"], 2, says, {"x.xml": xml}) for name, xml, says in REFUSED),
    *(Case(f"plan: {name}", [*PLAN, "--xml", "x.xml"], status, says, {"x.xml": xml}) for name, xml, status, says in PLANNED),
    *(Case(f"fsroot: {name}", ["topology", "--fsroot", "root"], 2, says, make) for name, make, says in ROOTS),
    *(Case(f"arguments: {' '.join(a)[:40]}", [*PLAN, "--xml", str(STORED / "lstopo_synthetic.xml"), *a], 2, says) for a, says in ARGUMENTS),
    Case("xml: absent", [*PLAN, "--xml", "x.xml"], 2, "cannot be read: No such file"),
    Case("xml: FIFO", [*PLAN, "--xml", "x.xml"], 2, "a pipe, not a file", lambda folder: os.mkfifo(folder / "x.xml")),
    Case("xml: /dev/zero", [*PLAN, "--xml", "/dev/zero"], 2, "/dev/zero: a device, not a file"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_topologies(case, hostile):
    hostile(case)
