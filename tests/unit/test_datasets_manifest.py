# SPDX-License-Identifier: Apache-2.0
"""The manifest: the shipped files are right, wrong ones are refused with file, line and reason."""

import re
from pathlib import Path

import pytest

from firsttouch.cli import main
from firsttouch.datasets.manifest import Expect, available, load, parse
from firsttouch.errors import BadInput

SHIPPED = Path(__file__).parents[2] / "datasets"
SHA = "sha256:" + "0" * 64
GOOD = f"""\
title = "A set"
kind = "url"
source = "someone"

[[file]]
role = "reference"
name = "a.fa"
url = "https://example.org/a.fa.gz"
checksum = "{SHA}"

[[file]]
role = "reads"
name = "a.fq"
url = "https://example.org/a.fq.gz"
why_unpinned = "none is published"

[expect]
reads = 10
"""


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTTOUCH_DATASETS", raising=False)


def test_the_shipped_manifest_has_what_the_studies_need() -> None:
    names = {dataset.name: dataset for dataset in available()[0]}
    assert set(names) >= {"lambda", "synthetic", "grch37", "grch38", "na12878", "gcat", "mix100", "mix50"}
    assert [f.url for f in names["mix50"].files] == [f.url for f in names["mix100"].files]
    assert [file.truncate for file in names["mix50"].files] == [50, 50]
    assert {names[name].reference for name in ("gcat", "na12878")} == {"grch37"}  # the thesis, section 5.3
    assert {names[name].reference for name in ("mix100", "mix50")} == {"grch38"}  # thread scaling, section 3.1


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_file_is_pinned_or_says_why_not(path: Path) -> None:
    for file in load(path.stem).files:
        assert (file.checksum != "unpinned" or file.packed_checksum) != bool(file.why_unpinned)


@pytest.mark.parametrize(
    ("text", "fractions"),
    [
        ("reads = 10", [0, 0]),
        ("mapped_fraction_min = 0.5", [0.5, 0.5]),
        ("mapped_fraction_min.one = 0.9\nmapped_fraction_min.others = 0.2", [0.9, 0.2]),
    ],
)
def test_how_much_maps_is_a_matter_of_the_aligner(text: str, fractions: list[float]) -> None:
    expect = parse(GOOD.replace("reads = 10", text), Path("a.toml")).expect
    assert [expect.mapped_fraction(name) for name in ("one", "another")] == fractions


@pytest.mark.parametrize(("pairs", "size", "reason"), [("0", '"50MB"', "a.toml:5: options: pairs")])
def test_the_options_of_a_generated_dataset_are_checked(pairs: str, size: str, reason: str) -> None:
    text = 'title = "A set"\nkind = "generated"\nsource = "made"\n\n[options]\n'
    text += f"genome_size = {size}\npairs = {pairs}\nrepeat_fraction = 0.4\nseed = 1\nread_length = 100\n"
    with pytest.raises(BadInput, match=f"^{re.escape(reason)}"):
        parse(text, Path("a.toml"))


def test_a_good_one() -> None:
    dataset = parse(GOOD, Path("a.toml"))
    assert (dataset.name, dataset.kind, dataset.expect) == ("a", "url", Expect(reads=10))
    assert [(file.role, file.source) for file in dataset.files] == [
        ("reference", "https://example.org/a.fa.gz"),
        ("reads", "https://example.org/a.fq.gz"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('kind = "url"', 'kind = "torrent"', 2, "kind must be one of package, url"),
        ('title = "A set"\n', "", 1, "'title' is missing"),
        ("reads = 10", "raeds = 10", 18, "unknown key 'raeds'"),
        ("reads = 10", "mapped_fraction_min.a = 0.5", 18, "key 'others' is missing"),
        ('kind = "url"', 'kind = "manual"', 1, "key 'how' is missing"),
        (SHA, "sha256:123", 9, "file[0].checksum: 'sha256:123' is not sha256:HEX, md5:HEX or unpinned"),
        ('why_unpinned = "none is published"', 'checksum = "unpinned"', 11, "why_unpinned"),
        (f'checksum = "{SHA}"', f'checksum = "{SHA}"\nwhy_unpinned = "no"', 5, "or else 'why_unpinned'"),
        ('name = "a.fq"', 'name = "a.fa"', 11, "two files have the name 'a.fa'"),
        ("https://example.org/a.fq.gz", "ftp://example.org/a.fq.gz", 14, "file[1].url"),
        ('url = "https://example.org/a.fq.gz"', "", 11, "'url' is missing"),
        ('why_unpinned = "n', 'first_bytes = 9\nwhy_unpinned = "n', 11, "'first_bytes' needs 'first_reads'"),
        ('role = "reference"', 'role = "reference"\ntruncate = 5', 5, "are for reads"),
        ('source = "someone"', 'source = "someone"\nreference = "b"', 1, "2 references"),
    ],
)
def test_a_wrong_one_says_where_and_why(old: str, new: str, line: int, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        parse(GOOD.replace(old, new), Path("a.toml"))
    assert str(caught.value).startswith(f"a.toml:{line}: ")
    assert reason in str(caught.value)


def test_a_wrong_file_hides_no_other_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe4'")
    (tmp_path / "short.toml").write_text("")
    (tmp_path / "good.toml").write_text(GOOD)
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path))
    datasets, errors = available()
    assert {dataset.name for dataset in datasets} >= {"good", "lambda"}
    assert [str(error.file) for error in errors] == [str(tmp_path / f"{n}.toml") for n in ("latin", "short")]
    assert main(["data", "list"]) == 2
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("good ")]
    assert "latin.toml:1: not UTF-8 text" in shown.err
    assert shown.err.splitlines()[-1].startswith(f"firsttouch: error: {tmp_path}/short.toml:1: ")


@pytest.mark.parametrize("url", ["http://[::1/x", "https://host:port/x", "http://:80/x", "http://me:secret@[/x"])
def test_an_address_without_a_host_is_refused(url: str) -> None:
    text = GOOD.replace("https://example.org/a.fq.gz", url)
    with pytest.raises(BadInput, match=r"^a\.toml:11: url: ") as caught:
        parse(text, Path("a.toml"))
    assert "secret" not in str(caught.value)
