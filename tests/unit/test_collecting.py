# SPDX-License-Identifier: Apache-2.0
"""The collector of alignments: it looks often at first, less often later, and ends at a request to stop."""

import pytest

from factories.clocks import ManualClock
from firsttouch.genomics.collecting import Collector
from firsttouch.genomics.dealing import Ledger
from firsttouch.genomics.pipe_writer import Stopped, StopRequest
from firsttouch.genomics.sam import ByteRange

HEADER = b"@HD\tVN:1.6\n"


class Output:
    """The output of an instance whose alignments are complete at the look number *complete_at*."""

    header, waiting, finished = HEADER, 0, False

    def __init__(self, place, complete_at):
        self.place, self.complete_at, self.looks = place, complete_at, 0
        self.released = []

    def look(self, *, ended):
        self.looks += 1
        self.finished = ended

    def next(self):
        return self.place if self.looks >= self.complete_at else None

    def release(self, place):
        self.released.append(place)


class Target:
    keeps_files = False

    def __init__(self):
        self.calls = []

    def begin(self, header):
        self.calls.append(header)

    def send(self, part, stop):
        self.calls.append(part)


@pytest.fixture
def stop():
    request = StopRequest()
    yield request
    request.close()


def collector(folder, stop, output):
    """Return a collector of one piece, which is in *output*, its target and its clock."""
    ledger, target, clock = Ledger(folder), Target(), ManualClock()
    ledger.add(0)
    ledger.close()
    return Collector([output], ledger, target, lambda header: header, stop, clock=clock), target, clock


def test_pauses_grow_to_a_tenth_of_a_second(tmp_path, stop):
    output = Output(ByteRange(tmp_path / "0.sam", 11, 400), complete_at=9)
    collecting, target, clock = collector(tmp_path, stop, output)
    collecting.ended.set()
    collecting.collect()
    assert clock.sleeps == [0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1, 0.1]
    assert target.calls == [HEADER, output.place]
    assert output.released == [output.place]


def test_a_request_to_stop_ends_the_wait(tmp_path, stop):
    stop.set()
    collecting, target, clock = collector(tmp_path, stop, Output(None, complete_at=9))
    with pytest.raises(Stopped):
        collecting.collect()
    assert (clock.sleeps, target.calls) == ([], [])
