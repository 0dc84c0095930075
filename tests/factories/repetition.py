# SPDX-License-Identifier: Apache-2.0
"""Hooks of pytest that run failed tests of the kind ``timing`` once more, alone, and print both results."""

import os
import subprocess
import sys

import pytest

#: The line that the repetition ends with.
ALONE = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Run each failed test of the kind ``timing`` once more, alone, and print both results.

    The run passes if it was complete, and if all failures were of this kind and passed alone.
    """
    config, reporter = session.config, session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    if os.environ.get("FIRSTTOUCH_ALONE"):
        if reporter.stats.get("skipped"):  # it says nothing about the failure
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return
    failed = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    repeated = {report.nodeid for report in failed if "timing" in getattr(report, "keywords", ())}
    complete = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not (
        session.shouldfail or session.shouldstop
    )
    if not repeated or not complete:
        return
    print(f"\nfailed, and depends on time, so it runs once more, alone: {', '.join(sorted(repeated))}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *sorted(repeated)]
    alone = subprocess.run(argv, cwd=config.rootpath, env={**environment, "FIRSTTOUCH_ALONE": "1"}, check=False)
    result = f"with others: {len(repeated)} failed; alone: {'passed' if alone.returncode == 0 else 'failed again'}"
    if alone.returncode == 0 and repeated == {report.nodeid for report in failed}:
        session.exitstatus = pytest.ExitCode.OK
        result += ", so the run passes"
    config.stash[ALONE] = result


def pytest_unconfigure(config):
    """Print the result of the repetition again, below pytest's own summary, which knows only the first one."""
    if ALONE in config.stash:
        print(config.stash[ALONE])
