# SPDX-License-Identifier: Apache-2.0
"""The values that a verdict on a host rests on, as the rules define them, one record at a time.

It shares nothing with firsttouch.judge. The reference that decided is given.
"""

import datetime

from firsttouch.records.schema import BUSY

HOUR = datetime.timedelta(hours=1)


class Host:
    """The records of one host."""

    def __init__(self, records):
        self.records = records
        times = {instant(r) for r in records}
        self.begins = [t for t in times if not any(t - HOUR <= other < t for other in times)]

    def cases(self):
        """Return the cases that were measured: check, metric and bank."""
        return {key(r) for r in self.records if r.metric != "busy_pus"}

    def session(self, time):
        """Return when the session of this time began: nothing was recorded in the hour before."""
        return max(t for t in self.begins if t <= time)

    def is_busy(self, time):
        """Return whether other processes used the host when it was last looked at in this session."""
        seen = [r for r in self.records if r.metric == "busy_pus" and instant(r) <= time]
        before = [r for r in seen if self.session(instant(r)) == self.session(time)]
        return bool(before) and max(before, key=lambda r: (instant(r), r.value)).value >= BUSY

    def values(self, case, counted):
        """Return the newest *counted* valid values of a *case*, without disturbed ones if there are others."""
        samples = sorted((r for r in self.records if key(r) == case), key=lambda r: (instant(r), r.value))
        valid = [r for r in samples if r.status == "valid"]
        calm = [r for r in valid if r.check == "topology" or not self.is_busy(instant(r))]
        return tuple(r.value for r in (calm or valid)[-counted:])


def key(record):
    bank = None if record.check == "topology" else record.parameters["bank"]
    return record.check, record.metric, bank


def instant(record):
    return datetime.datetime.fromisoformat(record.time)
