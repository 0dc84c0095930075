# SPDX-License-Identifier: Apache-2.0
"""Correctness: the known answers by another program, and one wrong answer that fails a host for good reason."""

import math
import re
import struct
from fractions import Fraction

import pytest
from msgspec.structs import replace

from firsttouch import paths
from firsttouch.benchmarks import correctness
from firsttouch.judge.judging import judge, judged
from firsttouch.records import samples_table
from firsttouch.records.schema import Record
from firsttouch.systems.definition import Undescribed

SOURCE = paths.ROOT / "probe" / "src" / "correctness.c"
MASK = (1 << 64) - 1
FACTOR, TERM = 6364136223846793005, 1442695040888963407
LANES, STEPS, BYTES, TEXT = 8, 16, 1 << 12, 1 << 10


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def bits_of(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def logistic(y):
    y = 3.99 * (y - y * y)
    return 1 / (1 / y)


def exact(y):
    """One rounding of y - y * y, as a fused multiply-add has it."""
    return 3.99 * float(Fraction(y) - Fraction(y) * Fraction(y))


def of_lanes(answer):
    """Return the exclusive or of the answers of all lanes."""
    digest = 0
    for lane in range(LANES):
        digest ^= rotated(answer(lane), lane)
    return digest


def integers(lane):
    x = (lane + 1) * TERM & MASK
    for _ in range(STEPS):
        x = x * FACTOR + TERM & MASK
        x ^= x >> 29
        x = x + x // (1000003 + lane) & MASK
        x ^= x.bit_count() << 17
    return x


def reals(lane):
    y = 0.1 + lane / 16
    for _ in range(STEPS):
        y = logistic(y)
        y = math.sqrt(y * y)
    return bits_of(y)


def fused(lane):
    y = 0.1 + lane / 16
    for _ in range(STEPS):
        y = exact(y)
    return bits_of(y)


def vectors(lane):
    x, y = (lane + 1) * TERM & MASK, 0.1 + lane / 16
    for _ in range(STEPS):
        x = x * FACTOR + TERM & MASK
        x ^= x >> 29
        x ^= x << 13 & MASK
        y = logistic(y)
    return x ^ rotated(bits_of(y), 31)


def words(count):
    state, listed = TERM, []
    for _ in range(count):
        state = state * FACTOR + TERM & MASK
        listed.append(state)
    return listed


def checksum():
    crc = 0
    for word in words(BYTES // 8):
        crc ^= word
        for _ in range(64):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def digest(data):
    value = TERM
    for (word,) in struct.iter_unpack("<Q", data):
        value = (value ^ word) * FACTOR & MASK
        value ^= value >> 32
    return value


def copy():
    return digest(struct.pack(f"<{BYTES // 8}Q", *words(BYTES // 8)))


def compression():
    """Longest matches at the last place of three equal bytes, and literals."""
    states = words(TEXT // 8)
    text = bytes(97 + (states[i // 8] >> (40 + i % 8 % 3)) % 5 for i in range(TEXT))
    latest, packed, i = [0] * 256, bytearray(), 0
    while i < TEXT:
        length = at = 0
        if i + 3 < TEXT:
            key = text[i] * 31 + text[i + 1] * 7 + text[i + 2] & 255
            at, latest[key] = latest[key], i
            while at < i and length < 255 and i + length < TEXT and text[at + length] == text[i + length]:
                length += 1
        packed += bytes([length, i - at >> 8, i - at & 255] if length > 3 else [0, text[i]])
        i += length if length > 3 else 1
    return digest(bytes(packed) + bytes(-len(packed) % 8)) ^ digest(text)


ANSWERS = {
    "integer": of_lanes(integers),
    "floating point": of_lanes(reals),
    "fused multiply-add": of_lanes(fused),
    **dict.fromkeys(("sse2 vectors", "avx2 vectors", "avx512 vectors", "neon vectors"), of_lanes(vectors)),
    "crc32c": checksum(),
    **dict.fromkeys(("copy", "streaming stores"), copy()),
    "compression": compression(),
}


def test_the_probe_knows_the_answers_of_another_program():
    listed = re.findall(r'\{"([^"]+)", \w+, \w+, UINT64_C\((0x\w+)\)\}', SOURCE.read_text())
    assert {name for name, _ in listed} == ANSWERS.keys()
    assert {name: int(answer, 16) for name, answer in listed} == ANSWERS


# ----------------------------------------------------------------------
# Verdicts


def answers(host, wrong=0.0, pu=None, day=1, work="integer"):
    """Return a record of a work on a host."""
    of_pu = {} if pu is None else {"pu": pu, "bits": "0x0000000000020000"}
    parameters = {"program": "firsttouch-probe", "work": work, "units": 10**6, **of_pu}
    time = f"2026-01-{day:02d}T00:00:00Z"
    case = (correctness.CHECK, correctness.ANSWERS, "1", "lower")
    return Record(*case, (wrong,), parameters, system="s", host=host, time=time)


def test_one_wrong_answer_of_a_million_fails_the_host_and_names_the_pu():
    records = [answers(f"n{number}", work=work) for number in range(20) for work in ("integer", "copy")]
    records.append(answers("n7", wrong=1.0, pu=37))
    verdicts = {verdict.host: verdict for verdict in judge(records, Undescribed("s"))}
    assert [host for host, verdict in verdicts.items() if verdict.verdict == "fail"] == ["n7"]
    assert not any(verdict.missing for verdict in verdicts.values())
    assert "37" in verdicts["n7"].reason()
    assert "integer" in verdicts["n7"].reason()
    assert "0x0000000000020000" in verdicts["n7"].reason()


@pytest.mark.parametrize("others", [1, 50])
def test_right_answers_never_outweigh_a_wrong_one(others):
    records = [answers("n1", work=f"w{number}") for number in range(others)]
    records = [replace(r, samples=(0.0,) * 9) for r in records]
    (verdict,) = judge([*records, answers("n1", wrong=1.0, pu=0)], Undescribed("s"))
    assert verdict.verdict == "fail"


def replacement(time, system="s"):
    stated = {"parameters": {"reason": "x"}, "system": system, "host": "n1", "time": time}
    return Record("configuration", "replaced", "1", "neither", (1.0,), **stated)


@pytest.mark.parametrize(
    ("stated", "verdict"),
    [
        (replacement("2026-01-01T00:01:00Z"), "undecided"),  # in the session of the wrong answer
        (replacement("2025-12-31T23:59:00Z"), "fail"),  # before it
        (replacement("2026-01-01T00:01:00Z", system="other"), "fail"),
    ],
)
def test_a_replacement_clears_what_was_wrong_before_it_in_its_system(stated, verdict):
    records = [answers("n1", wrong=5.0, pu=3), stated, *(answers("n1", day=day) for day in (2, 3))]
    assert [v.verdict for v in judge(records, Undescribed("s"))] == [verdict]
    table = samples_table.of_records(records)
    assert [judged(part, Undescribed("s")).verdict("n1").verdict for part in table.by_system("s").values()][
        :1
    ] == [verdict]


def test_one_wrong_sample_of_a_record_is_no_noise():
    record = replace(answers("n1", pu=3), samples=(*[0.0] * 9, 1.0))
    (verdict,) = judge([record, answers("n2")], Undescribed("s"))[:1]
    assert (record.value, verdict.verdict) == (1.0, "fail")
