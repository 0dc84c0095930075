# SPDX-License-Identifier: Apache-2.0
"""Progress: messages in a log; on a terminal also one live line, and coloured verdicts."""

import os
import pty
import subprocess
import sys

import pytest

from firsttouch.execution import progress
from firsttouch.execution.progress import Steps, colour_verdicts, live

PROGRAM = """if True:
    from firsttouch.execution import progress
    with progress.Steps() as steps:
        steps.begin("first", 2)
        progress.say("a message")
        progress.say("  first: done [" + steps.end() + "]")
        steps.begin("second", 1)
        steps.end()
    print(progress.colour_verdicts("verdict n1 fail: 1 of 2 pass"))
    print(progress.wrap_text("a sentence " * 9, 2))
    print(progress.tabular([("n1", 0.25, "a reason " * 9), ("n2", 12, None)], ("host", "loss", "why")))
    """


def on_terminal(**env):
    """Returns what PROGRAM writes to a terminal of 60 columns."""
    master, slave = pty.openpty()
    os.set_blocking(master, True)
    subprocess.run(["stty", "cols", "60"], stdin=slave, check=True)
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM"}} | {"TERM": "xterm"} | env
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=slave, stderr=slave, env=environment, timeout=60, check=True
    )
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(master)
    assert done.returncode == 0
    return text.decode().replace("\r\n", "\n")


def shown(text):
    """Returns the lines that stay on a terminal."""
    return [line.rsplit("\r\x1b[K", 1)[-1] for line in text.split("\n")]


def test_a_terminal_has_one_live_line_and_keeps_the_messages():
    text = on_terminal(NO_COLOR="1")
    assert "1/2: first" in text
    assert "2/2, about 0 s left: second" in text
    assert shown(text) == [
        "a message",
        "  first: done [1/2, about 0 s left]",
        "verdict n1 fail: 1 of 2 pass",
        "a sentence a sentence a sentence a sentence a sentence a",
        "  sentence a sentence a sentence a sentence",
        "host      loss  why",
        "------  ------  --------------------------------------------",
        "n1        0.25  a reason a reason a reason a reason a reason",
        "                a reason a reason a reason a reason",
        "n2          12  -",
        "",
    ]


def test_verdicts_are_coloured_on_a_terminal_unless_no_color_is_set():
    assert "verdict n1 \x1b[31mfail\x1b[0m: 1 of 2 pass\n" in on_terminal()
    assert "\x1b[31m" not in on_terminal(NO_COLOR="1")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_without_control_sequences_gets_none(term):
    assert "\x1b" not in on_terminal(TERM=term)


def test_a_log_has_no_live_line_and_no_colour(capsys):
    live("something")
    with Steps() as steps:
        steps.begin("first", 3)
        assert steps.end().startswith("1/3, about ")
    assert colour_verdicts("verdict n1 fail: x") == "verdict n1 fail: x"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "left", "text"),
    [
        ([], 5, ""),
        ([10], 2, ", about 20 s left"),
        ([1, 100, 60], 3, ", about 3 min left"),
        ([3600], 10, ", about 10 h left"),
        ([60], 0, ""),
    ],
)
def test_the_time_left_is_the_median_step_times_the_steps_left(seconds, left, text):
    steps = Steps()
    steps._seconds, steps._left = seconds, left
    assert steps._time_left() == text


def test_a_quiet_command_has_no_messages(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_quiet", False)
    progress.quiet()
    progress.say("a message")
    assert capsys.readouterr() == ("", "")
