# SPDX-License-Identifier: Apache-2.0
"""Data files: validation with line numbers, and what is remembered of validated files."""

import json
import subprocess
import sys

import pytest

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


def test_a_file_of_the_checkout_is_validated_again_when_it_or_its_schema_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(documents.paths, "ROOT", tmp_path)
    monkeypatch.setenv("FIRSTTOUCH_HOME", str(tmp_path / "home"))
    file, outside = tmp_path / "room" / "data.toml", tmp_path.parent / "data.toml"
    file.parent.mkdir()
    validated = []
    real = documents._validator
    monkeypatch.setattr(documents, "_validator", lambda schema: validated.append(1) or real(schema))
    for text, schema, times in (
        ('size = "1 GB"', SCHEMA, 1),
        ('size = "1 GB"', SCHEMA, 1),
        ('size = "2 GB"', SCHEMA, 2),
        ('size = "2 GB"', {**SCHEMA, "title": "x"}, 3),
    ):
        parse_toml(text, str(file)).check(schema)
        assert len(validated) == times
    for _ in range(2):  # a wrong file is wrong each time
        with pytest.raises(BadInput):
            parse_toml("size = 1", file).check(SCHEMA)
    parse_toml('size = "1 GB"', outside).check(SCHEMA)
    parse_toml('size = "1 GB"', outside).check(SCHEMA)
    assert len(validated) == 7
    assert [f.name for f in (tmp_path / "home" / "cache" / "validated").iterdir()] == ["room-data.toml"]


def test_a_plan_imports_no_validator_and_no_table_library():
    program = """
import sys
from firsttouch.scenarios.policies import policies
from firsttouch.genomics.aligners import aligners
from firsttouch.systems.definition import load
policies(), aligners(), load("local")
import json
print(json.dumps(sorted({"jsonschema", "polars"} & {*sys.modules})))
"""
    for _ in range(2):  # the first one may have to validate the package's files
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
