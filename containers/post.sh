#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs Debian's packages in the %post of a definition file, where the base has not got them yet.
#   containers/post.sh PACKAGE...
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
wanted=()
for package; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || wanted+=("$package")
done
if ((${#wanted[@]})); then
    # In a user namespace there is no other user that apt could become. Images of containers leave documentation
    # out, and bowtie2-examples is nothing else.
    options=(-qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0
        -o 'DPkg::Options::=--path-include=/usr/share/doc/bowtie2/*')
    apt-get "${options[@]}" update
    apt-get "${options[@]}" install -y --no-install-recommends "${wanted[@]}" >/dev/null
    apt-get clean
    rm -rf /var/lib/apt/lists/*
fi
