# SPDX-License-Identifier: Apache-2.0
"""The reference pages of the manual name every variable, key, placeholder and field that the program has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect

from documented import ROOT
from factories.processes import captured
from firsttouch.benchmarks import site_checks
from firsttouch.datasets import manifest
from firsttouch.fleet import site_settings
from firsttouch.genomics import aligners
from firsttouch.judge import causes
from firsttouch.records import catalogue
from firsttouch.records.schema import Record
from firsttouch.report import openmetrics
from firsttouch.scenarios import memory_options, policies
from firsttouch.systems import definition, processors, references

#: Folders whose programs read environment variables.
USERS = ("src", "slurm", "setup", "spack-env", "tests/emulated")
REFERENCE = ROOT / "docs" / "reference"


def words(text: str) -> set[str]:
    """Return what a page shows as code, and the parts of dotted keys."""
    code = re.findall(r"`([^`\n]+)`", text)
    return {*code, *(part for shown in code for part in re.split(r"[.:, \[\]{}]+", shown))}


def section(page: str, heading: str) -> set[str]:
    """Return the words of one part of a page: up to the next heading of its level."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return words(text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0])


def keys(kind: Any) -> Iterator[str]:
    """Yield every key of the tables of a type, and of the tables below them."""
    yield from (key for node in _nodes(inspect.type_info(kind)) for key in _fields(node))


def _fields(node: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in getattr(node, "fields", ())}


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    names = ("type", "types", "value_type", "item_type", "item_types")
    inner = [getattr(node, name) for name in names if hasattr(node, name)]
    for below in (*inner, *_fields(node).values()):
        for each in below if isinstance(below, tuple) else [below]:
            yield from _nodes(each)


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("System files", [definition.SystemFile, references.ReferenceEntry]),
        ("Processors", [processors.Family]),
        ("Aligner files", [aligners.AlignerFile]),
        ("Dataset files", [manifest.Dataset]),
        ("Policies", [policies.Policy]),
        ("Memory options", [memory_options.MemoryOption]),
        ("Causes", [causes._File]),
        ("Site checks", [site_checks.ProgramSpec]),
        ("Fleet settings", [site_settings.SiteSettings]),
    ],
)
def test_every_key_of_a_data_file_is_described(heading: str, kinds: list[Any]) -> None:
    allowed = {key for kind in kinds for key in keys(kind)}
    assert len(allowed) > 5
    # A policy or an option is named by its table.
    assert allowed - section("data-files.md", heading) - {"name"} == set()


def test_every_key_of_the_metrics_is_described() -> None:
    allowed = {*keys(catalogue.Check), *keys(catalogue.Common)}
    assert allowed >= {"metrics", "unit", "better", "data", "parameters", "axes", "limits", "verdict", "per_hour"}
    assert allowed <= section("data-files.md", "Metrics")


def test_every_placeholder_of_a_cause_is_described() -> None:
    described = section("data-files.md", "Causes")
    text = (ROOT / "src" / "firsttouch" / "judge" / "causes.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"\{\w+\}", re.sub(r"^#.*|^when.*", "", text, flags=re.MULTILINE))) - described == set()


def test_every_placeholder_of_an_aligner_is_described() -> None:
    described = section("data-files.md", "Aligner files")
    folder = ROOT / "src" / "firsttouch" / "genomics" / "aligners"
    texts = [file.read_text(encoding="utf-8") for file in folder.glob("*.toml")]
    # The counts of a summary have names of the file's own.
    texts = [re.sub(r"\n\[summary\].*?(?=\n\[|\Z)", "", text, flags=re.DOTALL) for text in texts]
    shown = {p for text in texts for p in re.findall(r"\{\w+\}", text)}
    assert len(shown) > 6
    assert shown - described == set()


def test_every_kind_of_dataset_and_what_it_needs_is_described() -> None:
    needed = {key for keys, _ in manifest._KINDS.values() for key in keys}
    assert {*manifest._KINDS, *needed} - section("data-files.md", "Dataset files") == set()


def test_every_environment_variable_is_described() -> None:
    listed = captured(["git", "grep", "-ohE", "FIRSTTOUCH_[A-Z_]+", "--", *USERS], cwd=ROOT, check=True)
    used = set(listed.stdout.split())
    assert len(used) > 15
    page = Path(REFERENCE, "environment.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert used - described == set()
    assert {name for name in described if name.startswith("FIRSTTOUCH_")} - used == set()


def test_every_field_of_a_record_is_described() -> None:
    assert set(Record.__struct_fields__) - section("results.md", "Records") == set()


def test_every_metric_family_that_is_no_measurement_is_described() -> None:
    source = Path(openmetrics.__file__).read_text(encoding="utf-8")
    families = set(re.findall(r'\.add\(\s*"(\w+)"', source))
    assert len(families) > 4
    described = section("results.md", "summary.prom")
    assert [f for f in families if not any(shown.startswith(f"firsttouch_{f}") for shown in described)] == []
