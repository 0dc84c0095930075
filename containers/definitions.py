# SPDX-License-Identifier: Apache-2.0
"""The Apptainer definitions of the run images: run.def.j2 filled with the data of images.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from programs import PACKAGES

HERE = Path(__file__).resolve().parent
IMAGES = tomllib.loads((HERE / "images.toml").read_text(encoding="utf-8"))


def definition(name: str) -> str:
    """Return the definition of a run image. Its {{ words }} are build arguments of Apptainer."""
    # Apptainer itself replaces {{ word }}, so the template's own marks are others.
    environment = Environment(
        loader=FileSystemLoader(HERE),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - a definition is not HTML
    )
    data = {**IMAGES, "name": name, "image": IMAGES["image"][name], "kinds": PACKAGES["images"][name]}
    return environment.get_template("run.def.j2").render(data)
