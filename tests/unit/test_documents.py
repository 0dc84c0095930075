# SPDX-License-Identifier: Apache-2.0
"""Data files: validation with line numbers, and what is remembered of validated files."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct, field

from firsttouch import documents, paths
from firsttouch.documents import Bytes, Count, FileTable, Percentage, Words, parse_toml, parse_yaml
from firsttouch.errors import BadInput


class Sized(FileTable, frozen=True):
    size: Bytes
    names: Words = ()


@pytest.mark.parametrize(
    ("toml", "yaml", "line", "key"),
    [
        ('size = "1 GB"\ncolour = 1', "size: 1 GB\ncolour: 1", 2, "unknown key 'colour'"),
        ('\nsize = "1 GHz"', "\nsize: 1 GHz", 2, "size: '1 GHz'"),
        ("size = true", "size: true", 1, "size: 'True'"),
    ],
)
def test_toml_and_yaml_are_refused_in_the_same_words(toml, yaml, line, key):
    for document in (parse_toml(toml, "file"), parse_yaml(yaml, "file")):
        with pytest.raises(BadInput) as caught:
            document.convert(Sized)
        assert str(caught.value).startswith(f"file:{line}: {key}")


def test_a_plan_imports_no_table_library():
    program = """
import sys
from firsttouch.scenarios.policies import policies
from firsttouch.genomics.aligners import aligners
from firsttouch.systems.definition import load
policies(), aligners(), load("local")
import json
print(json.dumps(sorted({"polars"} & {*sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("file", sorted(paths.SYSTEMS.glob("*.yaml")), ids=lambda file: file.stem)
def test_libyaml_gives_the_values_and_lines_that_python_gives(file, monkeypatch):
    text = file.read_text()
    fast = parse_yaml(text, file)
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    slow = parse_yaml(text, file)
    assert fast.data == slow.data
    places = [("facts",), ("facts", "memory"), ("partitions", 0, "access"), ("references", 1, "tolerance")]
    assert [fast.line(*where) for where in places] == [slow.line(*where) for where in places]


def test_a_tab_in_a_word_is_an_error_with_and_without_libyaml():
    with pytest.raises(BadInput, match=r"file:2: .*YAML"):
        parse_yaml("a: 1\nb\tc: 2\n", "file")


class Part(FileTable, frozen=True):
    share: Percentage
    words: tuple[Literal["some", "all"], ...] = ()


class Whole(FileTable, frozen=True):
    title: str
    size: Bytes = 0
    count: Count = 1
    least: float = 0.5
    is_new: bool = False
    parts: tuple[Part, ...] = ()
    by_name: dict[Annotated[str, Meta(pattern="^[a-z]+$", description="a small name")], Part] = field(
        default_factory=dict
    )
    names: frozenset[str] | bool = False
    part: Part | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    class_: str = ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title: x", Whole("x")),
        ("{title: x, size: 1 kB, count: 3, least: 1, is_new: true}", Whole("x", 1000.0, 3, 1, is_new=True)),
        (
            "{title: x, parts: [{share: 5 %, words: [some, all]}]}",
            Whole("x", parts=(Part(0.05, ("some", "all")),)),
        ),
        ("{title: x, names: [a, b, a], class: y}", Whole("x", names=frozenset({"a", "b"}), class_="y")),
        ("{title: x, names: true, part: {share: 1 %}}", Whole("x", names=True, part=Part(0.01))),
        ("{title: x, values: {a: [1], b: {c: d}}}", Whole("x", values={"a": [1], "b": {"c": "d"}})),
    ],
)
def test_a_checked_file_becomes_a_struct(text, expected):
    document = parse_yaml(text, "file")
    assert document.convert(Whole) == expected


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        ("size: 1 kB", 1, "key 'title'"),
        ("title: x\ntitel: y", 2, "unknown key 'titel': known are title, size, .*did you mean 'title'"),
        ("title: x\nsize: 1 GHz", 2, "size: '1 GHz'"),
        ("title: x\ncount: 0", 2, "count: '0'"),
        ("title: x\ncount: true", 2, "count: 'True'"),
        ("title: x\nis_new: 1", 2, "is_new: '1'"),
        ("title: x\nparts:\n- words: []", 3, r"key 'share' .* parts\[0\]"),
        ("title: x\nparts:\n- share: 5 %\n  words: [al]", 4, r"parts\[0\].words\[0\]: 'al'.* did you mean 'all'"),
        ("title: x\nparts:\n- share: -5 %", 3, r"parts\[0\].share: '-5 %'"),
        ("title: x\nby_name:\n  b: {share: 1 %}\n  a: {}", 4, "key 'share' .* by_name.a"),
        ("title: x\nby_name:\n  b: {share: 1 %}\n  A: {share: 1 %}", 4, "by_name.A: 'A' is not a small name"),
        ("title: x\nby_name:\n  b: {share: 1 %}\n  a: {share: 1 %, wrds: []}", 4, "unknown .* did you mean"),
        ("title: x\nclass_: y", 2, "unknown key 'class_': known are title, .*, class; did you mean 'class'"),
        ("[]", 1, "the file: a list"),
    ],
)
def test_what_a_struct_does_not_allow_is_named_with_its_line(text, line, place):
    with pytest.raises(BadInput, match=rf"^file:{line}: {place}"):
        parse_yaml(text, "file").convert(Whole)


def test_fields_that_are_given_are_not_keys():
    assert parse_yaml("size: 1 kB", "file").convert(Whole, title="x") == Whole("x", 1000)
    with pytest.raises(BadInput, match=r"^file:2: .*'title'"):
        parse_yaml("size: 1 kB\ntitle: y", "file").convert(Whole, title="x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"document": "d", "schema": 1, "title": "x"}', ""),
        ('{"document": "d", "schema": 1, "title": 7}', "title: '7'"),
        ('{"document": "d", "schema": 2, "title": "x"}', "schema 2"),
        ('{"document": "e", "schema": 1, "title": "x"}', "not it"),
        ('{"document": "d", "schema": 1, "title": "x", "least": NaN}', "not JSON"),
        ('{"document": "d", "schema": 1, "title": "x", "least": 1e999}', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_json_documents(tmp_path, text, reason):
    class Form(Struct):
        title: str
        least: float = 0.0

    file = tmp_path / "a.json"
    file.write_text(text)

    def read():
        return documents.read_json(file, "it", document="d", schema=1, form=Form, again="again")

    if not reason:
        assert read() == json.loads(text)
        return
    with pytest.raises(BadInput, match=reason) as caught:
        read()
    assert caught.value.file == file


def test_a_process_that_has_checked_files_ends_without_a_crash():
    """Without the frozen objects, about a quarter of these processes end by SIGSEGV."""
    script = """
import contextlib, msgspec
from firsttouch.systems import definition, references
for kind in (references.ReferenceEntry, definition.SystemFile):
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert({}, kind)
"""
    assert [subprocess.run([sys.executable, "-c", script], check=False).returncode for _ in range(16)] == [0] * 16
