# SPDX-License-Identifier: Apache-2.0
"""The manifest: the shipped files are right, wrong ones are refused with file, line and reason."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttouch.datasets import available, load
from firsttouch.datasets.manifest import mapped_fraction_min, parse
from firsttouch.errors import BadInput, Missing
from firsttouch.tomldoc import line_of

pytestmark = pytest.mark.unit

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
    names = {dataset.name: dataset for dataset in available()}
    assert set(names) >= {"lambda", "synthetic", "grch37", "grch38", "na12878", "gcat", "mix100", "mix50"}
    assert names["mix50"].parent == "mix100"
    assert [file.truncate for file in names["mix50"].files] == [50, 50]
    assert {names[name].reference for name in ("gcat", "na12878")} == {"grch37"}  # the thesis, section 5.3
    assert {names[name].reference for name in ("mix100", "mix50")} == {"grch38"}  # thread scaling, section 3.1


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_file_is_pinned_or_says_why_not(path: Path) -> None:
    for file in load(path.stem).files:
        assert (file.checksum != "unpinned" or file.packed_checksum) != bool(file.why_unpinned)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("reads = 10", [0, 0]),
        ("mapped_fraction_min = 0.5", [0.5, 0.5]),
        ("mapped_fraction_min.one = 0.9\nmapped_fraction_min.others = 0.2", [0.9, 0.2]),
    ],
)
def test_how_much_maps_is_a_matter_of_the_aligner(text: str, found: list[float]) -> None:
    expect = parse(GOOD.replace("reads = 10", text), Path("a.toml")).expect
    assert [mapped_fraction_min(expect, name) for name in ("one", "another")] == found


def test_a_good_one() -> None:
    dataset = parse(GOOD, Path("a.toml"))
    assert (dataset.name, dataset.kind, dataset.expect) == ("a", "url", {"reads": 10})
    assert [(file.role, file.source) for file in dataset.files] == [
        ("reference", "https://example.org/a.fa.gz"),
        ("reads", "https://example.org/a.fq.gz"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('kind = "url"', 'kind = "torrent"', 2, "kind must be one of package, url"),
        ('title = "A set"\n', "", 1, "'title' is missing"),
        ('title = "A set"', "title = 3", 1, "title: 3 is not of type 'string'"),
        ("reads = 10", "raeds = 10", 18, "unknown key 'raeds'"),
        ("reads = 10", "reads = 0", 18, "expect.reads: 0 is less than the minimum"),
        ("reads = 10", "reads = true", 18, "not of type 'integer'"),
        ("reads = 10", "reads = ", 18, "not TOML"),
        ("reads = 10", "mapped_fraction_min = 2", 18, "expect.mapped_fraction_min: 2 is greater"),
        ("reads = 10", "mapped_fraction_min.a = 0.5", 18, "key 'others' is missing"),
        ("reads = 10", "mapped_fraction_min = { a = 2, others = 0.5 }", 18, "mapped_fraction_min.a: 2 is greater"),
        ("reads = 10", 'mapped_fraction_min = "all"', 18, "not of type 'number', 'object'"),
        (SHA, "sha256:123", 9, "file.0.checksum"),
        ('why_unpinned = "none is published"', 'checksum = "unpinned"', 11, "why_unpinned"),
        (f'checksum = "{SHA}"', f'checksum = "{SHA}"\nwhy_unpinned = "no"', 5, "or else 'why_unpinned'"),
        ('name = "a.fq"', 'name = "a.fa"', 11, "two files have the name 'a.fa'"),
        ('name = "a.fq"', 'name = "../a.fq"', 13, "file.1.name"),
        ("https://example.org/a.fq.gz", "ftp://example.org/a.fq.gz", 14, "file.1.url"),
        ('url = "https://example.org/a.fq.gz"', "", 11, "'url' is missing"),
        ('why_unpinned = "n', 'path = "/a"\nwhy_unpinned = "n', 15, "unknown key 'path'"),
        ('why_unpinned = "n', 'first_bytes = 9\nwhy_unpinned = "n', 11, "'first_bytes' needs 'first_reads'"),
        ('role = "reference"', 'role = "reference"\ntruncate = 5', 5, "are for reads"),
        ('role = "reference"', 'role = "reads"', 1, "0 references"),
        ('source = "someone"', 'source = "someone"\nreference = "b"', 1, "2 references"),
    ],
)
def test_a_wrong_one_says_where_and_why(old: str, new: str, line: int, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        parse(GOOD.replace(old, new), Path("a.toml"))
    assert str(caught.value).startswith(f"a.toml:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('reference = "nowhere"', "reference: no dataset 'nowhere'"),
        ('reference = "mix50"', "'mix50' holds no reference of its own"),
        ('reference = "self"', "'self' holds no reference of its own"),
    ],
)
def test_links_lead_somewhere(text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in SHIPPED.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text())
    manual = f'title = "t"\nkind = "manual"\nsource = "s"\nhow = "h"\n{text}\n'
    reads = '[[file]]\nrole = "reads"\nname = "r.fq"\nwhy_unpinned = "w"\n'
    (tmp_path / "self.toml").write_text(manual + reads)
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path))
    with pytest.raises(BadInput, match=f"self.toml:5: reference: .*{reason[-10:]}") as caught:
        load("self")
    assert reason in str(caught.value)


@pytest.mark.parametrize(("parent", "reason"), [("mix50", "is itself derived"), ("gcat", "has no file 'x.fq'")])
def test_a_derived_set_needs_a_real_parent(
    parent: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in SHIPPED.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "child.toml").write_text(
        f'title = "t"\nkind = "derived"\nsource = "s"\nreference = "grch37"\nparent = "{parent}"\n'
        '[[file]]\nrole = "reads"\nname = "r.fq"\nof = "x.fq"\nwhy_unpinned = "w"\n'
    )
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path))
    with pytest.raises(BadInput, match=f"child.toml:5: .*{reason}"):
        load("child")


@pytest.mark.parametrize("name", ["nope", "../lambda", "", "lambda.toml", "a\nb", "LAMBDA"])
def test_an_unknown_name_lists_the_known(name: str) -> None:
    with pytest.raises(BadInput, match=r"no dataset .*known are .*lambda") as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_says_how_to_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path / "none"))
    with pytest.raises(Missing, match="set FIRSTTOUCH_DATASETS"):
        available()


def test_bytes_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.toml").write_bytes(b'title = "\xff"')
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path))
    with pytest.raises(BadInput, match=r"bad.toml: not UTF-8 text: .* at byte 9"):
        load("bad")


@settings(max_examples=300, deadline=None)
@given(
    at=st.integers(0, len(GOOD)),
    length=st.integers(0, 40),
    text=st.text(st.sampled_from('=[]{}"\n#.-_ 01abcfilenrs\\é\x00'), max_size=12),
)
def test_any_text_is_a_dataset_or_bad_input_in_one_line(at: int, length: int, text: str) -> None:
    damaged = GOOD[:at] + text + GOOD[at + length :]
    refused: BadInput | None = None
    try:
        dataset = parse(damaged, Path("a.toml"))
    except BadInput as error:
        refused = error
    if refused is None:
        assert all("/" not in file.name for file in dataset.files)
        return
    assert str(refused).startswith("a.toml:")
    assert "\n" not in str(refused)
    assert refused.line is not None
    assert 1 <= refused.line <= damaged.count("\n") + 1


def test_lines_of_keys_and_tables() -> None:
    assert line_of(GOOD, ["file", 1, "url"]) == 14
    assert line_of(GOOD, ["file", 1, "absent"]) == 11
    assert line_of(GOOD, ["expect"]) == 17
    assert line_of(GOOD, ["absent"]) == 1
