#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that the base lacks, in the %post of a definition file.
#   containers/post.sh PACKAGE...
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
wanted=()
for package; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || wanted+=("$package")
done
if ((${#wanted[@]})); then
    # apt cannot switch to its own user in a user namespace. Container images exclude documentation by default, but
    # bowtie2-examples consists of documentation.
    options=(-qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0
        -o 'DPkg::Options::=--path-include=/usr/share/doc/bowtie2/*')
    apt-get "${options[@]}" update
    apt-get "${options[@]}" install -y --no-install-recommends "${wanted[@]}" >/dev/null
    apt-get clean
    rm -rf /var/lib/apt/lists/*
fi
