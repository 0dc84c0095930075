# SPDX-License-Identifier: Apache-2.0
"""The contents of an image as SPDX 2.3 in JSON: packages of Debian, Python and Spack, and firsttouch."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttouch.records import atomic_files

#: A script to run inside an image. It prints one package per line, with fields separated by tabs.
LISTING = r"""
tab=$(printf '\t')
command -v dpkg-query >/dev/null && dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n' |
    while IFS=$tab read -r name version machine; do
        text=/usr/share/doc/$name/copyright
        licence=$(sed -n 's/^License: *//p' "$text" 2>/dev/null | sort -u | tr '\n' ';')
        printf 'deb\t%s\t%s\t%s\t%s\n' "$name" "$version" "$machine" "$licence"
    done
for info in /opt/firsttouch/venv/lib/python*/site-packages/*.dist-info; do
    [ -f "$info/METADATA" ] && awk -F': ' '$1=="Name"&&!n{n=$2} $1=="Version"&&!v{v=$2}
        $1=="License-Expression"{l=$2} $1=="License"&&!l{l="~"$2}
        /^$/{exit} END{printf "pypi\t%s\t%s\t\t%s\n", n, v, l}' "$info/METADATA"
done
for prefix in /opt/spack/store/*/*; do
    [ -d "$prefix/.spack" ] || continue
    name=$(basename "$prefix")
    module=$(echo "$name" | sed 's/-[0-9].*//; s/-/_/g')
    licence=$(find "$prefix/.spack/repos" -path "*/$module/package.py" -exec \
        sed -n 's/^    license("\([^"]*\)".*/\1/p' {} + 2>/dev/null | head -n 1)
    printf 'spack\t%s\t\t\t%s\n' "$name" "$licence"
done
true
"""


@dataclass(frozen=True)
class Package:
    """A package. *kind* is the type in package URLs (deb, pypi), or spack.

    *licence* is an SPDX expression, or a text: Debian's short names, and what begins with a tilde.
    """

    kind: str
    name: str
    version: str
    architecture: str = ""
    licence: str = ""


def packages(listing: str) -> list[Package]:
    """Return the packages in the output of LISTING."""
    entries = []
    for line in listing.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        kind, name, version, architecture, licence = fields
        if kind == "spack" and (match := re.fullmatch(r"(.+)-([0-9][^-]*|[0-9].*)-[a-z0-9]{32}", name)):
            name, version = match[1], match[2]
        entries.append(Package(kind, name, version, architecture, licence.rstrip(";")))
    return sorted(set(entries), key=lambda p: (p.kind, p.name, p.version))


def document(image: Path, sha256: str, contents: Iterable[Package], version: str, date: int) -> dict[str, Any]:
    """Return the SPDX document of *image*, its root package, which contains *contents*; *date* is the image's."""
    root = {
        **_entry("SPDXRef-image", image.name, version),
        "packageFileName": image.name,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
        "primaryPackagePurpose": "CONTAINER",
    }
    entries = [root]
    for number, package in enumerate(contents, start=1):
        entry = _entry(f"SPDXRef-{number}", package.name, package.version)
        vendor = "debian/" if package.kind == "deb" else ""
        kind = "generic" if package.kind == "spack" else package.kind
        suffix = f"?arch={package.architecture}" if package.architecture else ""
        reference = {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:{kind}/{vendor}{package.name}@{package.version}{suffix}",
        }
        entry["externalRefs"] = [reference]
        if package.licence:
            is_text = package.kind == "deb" or package.licence.startswith("~")
            entry["licenseComments" if is_text else "licenseDeclared"] = package.licence.lstrip("~")
        entries.append(entry)
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        "documentNamespace": f"urn:firsttouch:image:{sha256}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(date, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
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


def main(wheel: Path, lock: Path, date: int) -> None:
    """Print the document of a release's wheel, with the locked packages that it is tested with."""
    listed = re.findall(r"^([a-z0-9._-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    contents = [Package("pypi", name, version) for name, version in listed]
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(json.dumps(document(wheel, sha256, contents, wheel.name.split("-")[1], date), indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
