#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the definition files do in %post (profile debian): containers/post.sh packages NAME...
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# In a user namespace there is no other user that apt could become.
options=(-qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o DPkg::Options::=--force-unsafe-io
    -o 'DPkg::Options::=--path-include=/usr/share/doc/bowtie2/*')
shift
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --no-install-recommends "$@" >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log
