# SPDX-License-Identifier: Apache-2.0
"""`firsttouch data`: one JSON document on stdout, messages on stderr."""

import json
from pathlib import Path

import pytest

from factories.processes import run_parsed
from firsttouch.cli import data
from firsttouch.datasets import fetch, manifest
from firsttouch.datasets.fetch import LocalDataset
from firsttouch.datasets.manifest import Expect, Options
from firsttouch.datasets.synthetic import options_of, tag
from firsttouch.errors import BadInput, Missing

pytestmark = pytest.mark.usefixtures("data_store")

LOCAL = LocalDataset(
    "x", Path("/s/x.fa"), (Path("/s/1.fq"), Path("/s/2.fq")), Expect(reads=3), notes=("x: a note",)
)
DEFAULTS = Options(50_000_000, 0.4, 1, 9, 100)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_parsed("data", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(manifest.available()[0])
    assert next(line for line in lines if line.startswith("lambda")).split()[1:3] == ["absent", "package"]


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_parsed("data", "list", "--json") == 0
    datasets = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["datasets"]}
    assert datasets["lambda"]["expect"]["reads"] == 10_000
    assert (datasets["mix100"]["state"], datasets["mix100"]["reference"]) == ("absent", "grch38")


def test_json_is_one_document_and_notes_are_messages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "get", lambda *_, **__: LOCAL)
    assert run_parsed("data", "get", "x", "--json") == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["reads"] == ["/s/1.fq", "/s/2.fq"]
    assert document["notes"] == ["x: a note"]
    assert err == "firsttouch: note: x: a note\n"
    assert run_parsed("data", "get", "x") == 0
    assert capsys.readouterr().out.split() == ["reference", "/s/x.fa", "reads", "/s/1.fq", "reads", "/s/2.fq"]


def test_only_given_options_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(fetch, "get", lambda name, **given: seen.append((name, given)) or LOCAL)
    run_parsed("data", "get", "x", "--set", "genome_size=5MB", "--set", "seed=0", "--from", "a.fq", "b.fq")
    ((name, given),) = seen  # type: ignore[misc]
    given.pop("progress")
    assert name == "x"
    assert given == {"genome_size": "5MB", "seed": "0", "from_files": [Path("a.fq"), Path("b.fq")]}


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with data._meter() as meter:
        for done in (0, 1, 11 * 2**20, 12 * 2**20):
            meter("downloading x", done, 22 * 2**20)
        meter("waiting for another", 0, None)
    assert capsys.readouterr().err == ("firsttouch: downloading x\nfirsttouch: waiting for another\n")


def test_options_have_names_of_their_own() -> None:
    asked = options_of(DEFAULTS, {"genome_size": "0.1GB", "pairs": 5})
    assert asked == Options(100_000_000, 0.4, 1, 5, 100)
    given = [*({name: 60} for name in ("seed", "pairs", "read_length")), {"genome_size": 60_000}]
    others = [options_of(DEFAULTS, options) for options in [*given, {"repeat_fraction": 0.5}]]
    assert len({tag(options) for options in [asked, *others]}) == 6


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"genome_size": "huge"}, "'huge' is not a quantity of bytes"),
        ({"repeat_fraction": 1.0}, "repeat_fraction must be from 0.0 to 0.95"),
        ({"read_length": 1000}, "read_length must be from 30 to 250"),
        ({"pairs": None}, "is not a number"),
        ({"ploidy": 2}, "no option 'ploidy': there are genome_size"),
    ],
)
def test_options_that_cannot_be(given: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        options_of(DEFAULTS, given)


def test_without_dwgsim_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="apt-get install dwgsim"):
        fetch.get("synthetic", genome_size=10_000)
