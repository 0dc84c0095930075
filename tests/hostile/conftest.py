"""The time limit of these tests, and the harness of hostile.py, which describes how to add a kind."""

import pytest

import hostile as harness


def pytest_collection_modifyitems(items):
    """Limit the time of the tests of this folder; a traceback in a thread fails a test, too."""
    for item in items:
        if item.nodeid.startswith("tests/hostile/"):
            item.add_marker(pytest.mark.timeout(2 * harness.LIMIT))
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"))


@pytest.fixture(scope="session", autouse=True)
def loaded():
    """Loads the late imports, which would change a case's time."""
    from firsttouch.report import writing  # noqa: F401, PLC0415


@pytest.fixture
def hostile(tmp_path, monkeypatch, capfd):
    """Returns a function that runs a case and checks it."""
    return lambda case: harness.check(case, tmp_path, monkeypatch, capfd)
