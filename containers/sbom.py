# SPDX-License-Identifier: Apache-2.0
"""The contents of an image as SPDX 2.3 in JSON: packages of Debian, Python and Spack, and firsttouch."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.records import atomic_files

#: A script to run inside an image. It prints one package per line, with fields separated by tabs.
LISTING = r"""
command -v dpkg-query >/dev/null &&
    dpkg-query -W -f 'deb\t${source:Package}\t${Package}\t${Version}\t${Architecture}\n'
for info in /opt/firsttouch/venv/lib/python*/site-packages/*.dist-info; do
    [ -f "$info/METADATA" ] && awk -F': ' '$1=="Name"{n=$2} $1=="Version"{v=$2; exit}
        END{printf "pypi\t%s\t%s\t%s\t\n", n, n, v}' "$info/METADATA"
done
for spec in /opt/spack/store/*/*/.spack/spec.json; do
    [ -f "$spec" ] && printf 'spack\t%s\n' "$(basename "$(dirname "$(dirname "$spec")")")"
done
true
"""


@dataclass(frozen=True)
class Package:
    """A package. *kind* is the type in package URLs (deb, pypi), or spack."""

    kind: str
    name: str
    version: str
    architecture: str = ""


def packages(listing: str) -> list[Package]:
    """Return the packages in the output of LISTING."""
    entries = []
    for line in listing.splitlines():
        fields = line.split("\t")
        if fields[0] == "spack" and (match := re.fullmatch(r"(.+)-([0-9][^-]*|[0-9].*)-[a-z0-9]{32}", fields[1])):
            entries.append(Package("spack", match[1], match[2]))
        elif len(fields) == 5:
            entries.append(Package(fields[0], fields[2], fields[3], fields[4]))
    return sorted(set(entries), key=lambda p: (p.kind, p.name, p.version))


def document(image: Path, sha256: str, contents: Iterable[Package], version: str) -> dict[str, Any]:
    """Return the SPDX document of *image*. The image is its root package and contains *contents*."""
    root = {
        **_entry("SPDXRef-image", image.name, version),
        "packageFileName": image.name,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
        "primaryPackagePurpose": "CONTAINER",
    }
    entries = [root]
    for number, package in enumerate(contents, start=1):
        entry = _entry(f"SPDXRef-{number}", package.name, package.version)
        if package.kind != "spack":
            vendor = "debian/" if package.kind == "deb" else ""
            suffix = f"?arch={package.architecture}" if package.architecture else ""
            locator = f"pkg:{package.kind}/{vendor}{package.name}@{package.version}{suffix}"
            reference = {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": locator,
            }
            entry["externalRefs"] = [reference]
        entries.append(entry)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        "documentNamespace": f"urn:firsttouch:image:{sha256}",
        "creationInfo": {
            "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: firsttouch-{version}"],
        },
        "packages": entries,
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_relation("SPDXRef-image", "CONTAINS", e["SPDXID"]) for e in entries[1:]),
        ],
    }


def write(file: Path, document: dict[str, Any]) -> None:
    """Write an SPDX document."""
    atomic_files.write(file, json.dumps(document, indent=1) + "\n")


def kinds(contents: Sequence[Package]) -> str:
    """Return the number of packages of each kind, in words."""
    names = {"deb": "Debian's", "pypi": "Python's", "spack": "Spack's"}
    counts = {k: sum(p.kind == k for p in contents) for k in names}
    return ", ".join(f"{count} of {names[kind]}" for kind, count in counts.items() if count)


def _entry(identifier: str, name: str, version: str) -> dict[str, Any]:
    unknown = "NOASSERTION"
    licences = {"licenseConcluded": unknown, "licenseDeclared": unknown, "copyrightText": unknown}
    common = {"downloadLocation": unknown, "filesAnalyzed": False, **licences}
    return {"SPDXID": identifier, "name": name, "versionInfo": version, **common}


def _relation(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
