# SPDX-License-Identifier: Apache-2.0
"""Data files: validation with line numbers, and what is remembered of validated files."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pytest
from msgspec import Struct, field

from firsttouch import documents, paths
from firsttouch.documents import parse_toml, parse_yaml
from firsttouch.errors import BadInput

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["size"],
    "properties": {"size": {"type": "string", "quantity": "bytes"}, "names": {"type": "array", "minItems": 1}},
}


@pytest.mark.parametrize(
    ("toml", "yaml", "line", "reason"),
    [
        ('size = "1 GB"\ncolour = 1', "size: 1 GB\ncolour: 1", 2, "unknown key 'colour': known are size, names"),
        ("names = [1]", "names: [1]", 1, "key 'size' is missing"),
        ('\nsize = "1 GHz"', "\nsize: 1 GHz", 2, "size: '1 GHz' is not a quantity of bytes: write"),
        ('size = "1 B"\nnames = []', "size: 1 B\nnames: []", 2, "names is empty"),
        ("size = 1", "size: 1", 1, "size: 1 is not of type 'string'"),
    ],
)
def test_toml_and_yaml_are_refused_in_the_same_words(toml, yaml, line, reason):
    for document in (parse_toml(toml, "file"), parse_yaml(yaml, "file")):
        with pytest.raises(BadInput) as caught:
            document.check(SCHEMA)
        assert str(caught.value).startswith(f"file:{line}: {reason}")


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
    with pytest.raises(BadInput, match="file:2: not YAML: found character"):
        parse_yaml("a: 1\nb\tc: 2\n", "file")


class Part(Struct, frozen=True):
    share: Annotated[float, {"type": "string", "percent": "positive", "description": 'a share such as "5 %"'}]
    words: tuple[Literal["some", "all"], ...] = ()


class Whole(Struct, frozen=True):
    title: str
    size: Annotated[float, {"type": "string", "quantity": "bytes", "description": "a size"}] = 0.0
    count: Annotated[int, {"minimum": 1, "description": "a whole number of at least 1"}] = 1
    least: float = 0.5
    is_new: bool = False
    parts: tuple[Part, ...] = ()
    by_name: dict[str, Part] = field(default_factory=dict)
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
    document.check(documents.schema_of(Whole))
    assert documents.build(Whole, document.data) == expected


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("size: 1 kB", 1, "key 'title' is missing"),
        ("title: x\ntitel: y", 2, "unknown key 'titel': known are title, size, .*did you mean 'title'"),
        ("title: 1", 1, "title: '1' is not text"),
        ("title: x\nsize: 1", 2, "size: '1' is not a size"),
        ("title: x\nsize: 1 GHz", 2, "size: '1 GHz' is not a quantity of bytes"),
        ("title: x\ncount: 0", 2, "count: '0' is not a whole number of at least 1"),
        ("title: x\ncount: true", 2, "count: 'True' is not a whole number of at least 1"),
        ("title: x\nleast: y", 2, "least: 'y' is not a number"),
        ("title: x\nis_new: 1", 2, "is_new: '1' is not true or false"),
        ("title: x\nparts: {}", 2, "parts: a mapping is not a list"),
        ("title: x\nparts:\n- words: []", 3, r"key 'share' is missing in parts\[0\]"),
        (
            "title: x\nparts:\n- share: 5 %\n  words: [none]",
            4,
            r"parts\[0\].words\[0\]: 'none' is not one of some, all",
        ),
        ("title: x\nby_name:\n  a: {}", 3, "key 'share' is missing in by_name.a"),
        ("title: x\nby_name: []", 2, "by_name: a list is not a mapping"),
        ("title: x\nnames: 1", 2, "names: 1 is not valid under any of the given schemas"),
        ("title: x\npart: {}", 2, "key 'share' is missing in part"),
        ("title: x\nclass_: y", 2, "unknown key 'class_': known are title, .*, class; did you mean 'class'"),
        ("[]", 1, "the file: a list is not a mapping"),
    ],
)
def test_what_a_struct_does_not_allow_is_named_with_its_line(text, line, reason):
    with pytest.raises(BadInput, match=rf"^file:{line}: {reason}"):
        parse_yaml(text, "file").check(documents.schema_of(Whole))
