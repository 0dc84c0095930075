# SPDX-License-Identifier: Apache-2.0
"""Separates the commands of aligners from the commands of other programs.

Only aligner files that name a program of the command are parsed: most commands match none, and parsing all files
takes longer than the rest of a short run.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firsttouch import documents, paths
from firsttouch.errors import BadInput

if TYPE_CHECKING:
    from firsttouch.genomics.aligners import Aligner

#: A version at the end of a program's name, as in bwa-0.7.17.
_VERSION = r"[-_.]v?\d[\w.-]*$"
#: What may follow a program's name in the name of a copy, as in bwa-new.
_ENDING = "[-_.].*"
#: The text of a file, which is read once.
_text = functools.cache(documents.read_text)
#: More words than begin any aligner's command.
_BEGINNING = 8


def recognize(words: Sequence[str]) -> tuple[Aligner, int] | None:
    """Return the aligner that *words* call and the number of words of the call; None if they call none.

    Raises BadInput if only an invalid file names the program.
    """
    candidates, error = _with_names(words[:1])
    lengths = [(aligner.command.length_of_call(words), aligner) for aligner in candidates if aligner.command]
    length, aligner = max(lengths, key=lambda candidate: candidate[0], default=(0, None))
    if aligner and length:
        return aligner, length
    if error:
        raise error
    return None


def undivided_because(words: Sequence[str]) -> str:
    """Return why *words*, which call no aligner, are not divided if they run one nevertheless, or an empty string.

    Another program may precede it, such as nice, or its name may have a version, such as bwa-0.7.17, or be a link.
    A copy such as bwa-new is noticed by its subcommand only, because bowtie2-build does not align.
    """
    called = os.path.realpath(shutil.which(words[0]) or words[0])
    if words[0].endswith("sh"):  # a script is one word
        words = [part for word in words for part in word.split()]
    syntaxes = [a.command for a in _with_names([*words, called])[0] if a.command and not a.command.refused]
    begins = [begin for syntax in syntaxes for begin in (*syntax.begins, *syntax.begins_paired)]
    for number, word in enumerate(words if syntaxes else ()):
        beginning = list(words[number + 1 : number + _BEGINNING])
        if number and any(syntax.length_of_call([word, *beginning]) for syntax in syntaxes):
            command = f"{shlex.join(words[number : number + 2])} ..."
            return f"{words[0]} runs one process of `{command}`: `firsttouch run -- {command}` divides its reads"
        names = {_unversioned(word), "" if number else _unversioned(called)}
        for program, *others in begins:
            # Behind another program, a single word such as minimap2-2.28.bam may be a file.
            begins_so = beginning[: len(others)] == others and (others or not number)
            if begins_so and (program in names or (others and program == _unversioned(word, _ENDING))):
                return f"{word} is not known as an aligner; under the name {program}, its reads would be divided"
    return ""


def _with_names(words: Sequence[str]) -> tuple[list[Aligner], BadInput | None]:
    """Return the aligners whose table [command] may name one of *words*, and an error of another file."""
    names = {_unversioned(word, end) for word in words for end in ("", _VERSION, _ENDING)}
    candidates: list[Aligner] = []
    error: BadInput | None = None
    for name, file in paths.data_files("aligners", ".toml").items():
        try:
            text = _text(file)
            if not any(f'"{called}"' in text or f"'{called}'" in text for called in names):
                continue
            from firsttouch.genomics.aligners import aligner  # noqa: PLC0415 - most commands need no aligner

            if (candidate := aligner(name)).command and candidate.command_of == name:
                candidates.append(candidate)
        except BadInput as reason:
            error = error or reason
    return candidates, error


def _unversioned(word: str, ending: str = _VERSION) -> str:
    """Return the name of a program without its folder and its version or another *ending*."""
    return re.sub(ending, "", word.rpartition("/")[2])
