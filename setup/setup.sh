#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what firsttouch needs: programs from Debian, the virtual environment .venv and the native probe in it.
# A second run changes nothing. Usage: setup/setup.sh run|venv|study|dev|test
# (venv: only .venv and the probe, for measured programs from a container or from Spack; study: also what the programs of
# `make study-programs` are built with; dev: also the Python packages of linters, documents and tests; test: also the
# programs that only the tests need)
set -euo pipefail
cd -P "$(dirname "$0")/.."
group=${1:-run}
lock=setup/requirements.lock
if [[ $group =~ ^(dev|test)$ ]]; then lock=setup/dev-requirements.lock; fi

fail() { printf 'setup: error: %s\n' "$1" >&2; exit 3; }
fail_with_log() { tail -n 5 "$log" >&2; fail "$1"; }
say() { printf 'setup: %s\n' "$1" >&2; }

#: The names of interpreters that are tried.
pythons=(python3 python3.14 python3.13 python3.12 python3.11)
#: The release of the distribution, for which packages are left out.
# shellcheck disable=SC1090
release=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo "${ID:-unknown}-${VERSION_ID:-}") || release=unknown

# ---------------------------------------------------------------- missing packages
present() { # what
    case $1 in
        python:*) has_module "${1#python:}" ;;
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}
has_module() { # module: whether a Python that is new enough has it
    local candidate
    for candidate in "${pythons[@]}"; do
        if "$candidate" -c "import sys, $1; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then return; fi
    done
    return 1
}
missing() { # prints the missing packages, without those that this distribution turned out not to have
    local of package what
    local groups=" venv $group "
    case $group in dev) groups+="run " ;; test) groups+="run study " ;; esac
    while read -r of package what; do
        if [[ $groups == *" $of "* ]] && ! present "$what" && ! grep -qxF "$release $package" .cache/left-out 2>/dev/null; then
            echo "$package"
        fi
    done <setup/debian-packages.txt
}
is_optional() { # package: whether firsttouch does without it, because it is only measured or for tests
    ! awk -v name="$1" '$1 == "venv" && $2 == name { found = 1 } END { exit !found }' setup/debian-packages.txt
}
# Names what is left out, and where else it is.
left_out() { # package...
    if (($#)); then say "left out, not packaged here: $*. A Spack view or an image has them (docs/howto/containers.md)"; fi
}
without_them() { # package...: the way to do without these, if there is one
    local name
    for name; do if ! is_optional "$name"; then return; fi; done
    echo "; without them: setup/setup.sh venv"
}

# ---------------------------------------------------------------- other distributions
distribution() { # prints debian, ubuntu, rhel, sles, or nothing
    local id
    # shellcheck disable=SC1090
    for id in $(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}"); do
        case $id in
            debian | ubuntu) echo "$id" && return ;;
            rhel | rocky | almalinux | centos | fedora) echo rhel && return ;;
            sles | suse | opensuse*) echo sles && return ;;
        esac
    done
}
package_names() { # distribution debian-package...: prints the distribution's names, "-NAME" for what it does not have
    local column=1 package
    case $1 in ubuntu) column=2 ;; rhel) column=3 ;; sles) column=4 ;; esac
    for package in "${@:2}"; do
        awk -v name="$package" -v column=$column '
            $1 == name { print $column == "-" ? "-" name : $column; seen = 1 } END { if (!seen) print name }
        ' setup/other-distributions.txt
    done
}
# Ends with the command that installs packages where apt-get is not. Programs without a package are left out.
fail_with_command() { # debian-package...
    local of command name names=() others=() wanted=()
    of=$(distribution)
    case $of in
        rhel) command="dnf install epel-release && crb enable && dnf install" ;;
        sles) command="zypper install" ;;
        *) fail "missing here: ${*%%|*} (Debian package names). Install them another way and try again$(without_them "$@")" ;;
    esac
    for name; do
        case $(package_names "$of" "$name") in
            -*) others+=("${name%%|*}") ;;
            *) names+=("$(package_names "$of" "$name")") && wanted+=("$name") ;;
        esac
    done
    left_out "${others[@]}"
    if ((${#names[@]})); then
        fail "missing here: ${wanted[*]%%|*}. As root: $command ${names[*]}$(without_them "${wanted[@]}")"
    fi
}

# ---------------------------------------------------------------- Debian's packages
install_packages() { # package...
    local become=()
    if ! command -v apt-get >/dev/null; then
        fail_with_command "$@"
        return
    fi
    if [[ $(id -u) != 0 ]]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            become=(sudo -n env DEBIAN_FRONTEND=noninteractive)
        else
            fail "missing here: ${*%%|*}. As root: setup/setup.sh $group$(without_them "$@")"
        fi
    fi
    export DEBIAN_FRONTEND=noninteractive
    say "installing from Debian: ${*%%|*}"
    "${become[@]}" apt-get update -qq &>"$log" || fail_with_log "apt-get update failed: no network? Missing here: ${*%%|*}"
    local options=() others=() absent=() package name
    for package; do
        name=$(available "$package")
        if [[ -z $name && $package == lmbench ]]; then
            name=$(download_nonfree lmbench "$private" 2>/dev/null) || name=
        fi
        if [[ -n $name ]]; then
            others+=("$name")
        elif is_optional "$package"; then
            absent+=("${package%%|*}")
            echo "$release $package" >>.cache/left-out
        else
            fail "this distribution has no package $package, which is needed"
        fi
    done
    left_out "${absent[@]}"
    if ! ((${#others[@]})); then return; fi
    # In container images, dpkg omits documentation; bowtie2-examples contains nothing else.
    options=(-o 'DPkg::Options::=--path-include=/usr/share/doc/bowtie2/*' -o Dpkg::Use-Pty=0)
    "${become[@]}" apt-get install -y -qq --no-install-recommends --reinstall "${options[@]}" "${others[@]}" &>"$log" ||
        fail_with_log "apt-get install failed for: $*"
}
available() { # package: prints the first of its names that this release has
    local name
    for name in $(package_names "$(distribution)" "$1" | tr '|' ' '); do
        if [[ $(LC_ALL=C apt-cache policy "$name") == *"Candidate: "[!\(]* ]]; then
            echo "$name"
            return
        fi
    done
}
# Downloads a package from non-free, from the same mirror as the machine's main, and prints the file's path. The
# machine's apt sources stay unchanged.
download_nonfree() { # package folder
    local folder=$2/apt sources uri codename key=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    # shellcheck disable=SC2016  # apt expands these $(…)
    sources=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
        'Identifier: Packages' 'Origin: Debian' 'Label: Debian' | awk '$3 == "main" && $2 !~ /-/' | sort -u | head -n 1)
    [[ -n $sources ]] || fail "no Debian mirror in this machine's apt sources: $1 cannot be found"
    read -r uri codename _ <<<"$sources"
    if [[ ! -e $key ]]; then key=; fi
    printf 'deb %s%s %s non-free\n' "${key:+[signed-by=$key] }" "$uri" "$codename" >"$folder/sources.list"
    local options=(-o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq &>"$log" ||
        fail_with_log "the component non-free of this machine's mirror cannot be read: $1 is missing"
    (cd "$folder" && apt-get "${options[@]}" download -qq "$1" &>"$log") ||
        fail_with_log "$1 cannot be downloaded from non-free"
    find "$folder" -maxdepth 1 -name "$1_*.deb"
}

# ---------------------------------------------------------------- the virtual environment
find_python() { # sets python, the interpreter that creates .venv
    local candidate
    python=
    for candidate in "${pythons[@]}"; do
        # The base interpreter of a virtual environment, because an activated .venv may be replaced below.
        python=$("$candidate" -c 'import sys; print(sys._base_executable if sys.version_info >= (3, 11) else "")' \
            2>/dev/null) || python=
        if [[ -n $python ]]; then return; fi
    done
    fail "Python 3.11 or newer is needed; this host has $(python3 --version 2>&1)"
}
# The programs of .venv contain their own path, so a checkout that was moved needs a new .venv.
recipe() { # lock
    { cat "$1" pyproject.toml setup/setup.sh setup/hatch_build.py setup/*.pth && echo "$PWD" && "$python" -VV; } |
        sha256sum | cut -d' ' -f1
}
venv_is_current() { # what all developers' packages are in is enough to measure
    [[ $(cat .venv/recipe 2>/dev/null) =~ ^($(recipe "$lock")|$(recipe setup/dev-requirements.lock))$ ]] && .venv/bin/python -c 'import firsttouch' 2>/dev/null
}
closed_to_others() { # file: prints the folder above it that other users may not enter
    local folder=$1
    while [[ $folder != / ]]; do
        folder=$(dirname "$folder")
        if ! ((0$(stat -c %a "$folder") & 1)); then
            echo "$folder"
            return
        fi
    done
}
# Installs the locked packages by uv, one of them, which unpacks on all PUs and links what an earlier .venv has. It knows
# only those of pip's settings that are handed on here; where it fails, pip installs them.
install_locked() { # environment
    local pip=("$1/bin/python" -m pip --disable-pip-version-check -q)
    local settings name variable value
    awk '/^[^ ]/ { of_uv = /^uv==/ } of_uv' setup/dev-requirements.lock >"$private/uv.lock"
    "${pip[@]}" install --no-compile --require-hashes --no-deps -r "$private/uv.lock" || return
    settings=$("${pip[@]}" config list)
    (
        while read -r name variable; do
            value=$(awk -F"'" -v setting="[.]$name=\$" '$1 ~ setting { print $2; exit }' <<<"$settings")
            if [[ -n $value && ! -v $variable ]]; then export "$variable=$value"; fi
        done <<<"index-url UV_DEFAULT_INDEX
find-links UV_FIND_LINKS
cert SSL_CERT_FILE"
        "$1/bin/uv" pip install -q --python "$1/bin/python" --require-hashes --no-deps -r "$lock" &>"$log"
    ) || "${pip[@]}" install --no-compile --require-hashes --no-deps -r "$lock"
}
#: Packages of development only, which compile what they use when they use it.
uncompiled='docutils grafana_foundation_sdk hypothesis mypy mypyc pip pygments scipy setuptools sphinx'
# Makes .venv.new and replaces .venv with it once it is complete: until then jobs can use the old one.
make_venv() {
    local new=.venv.new closed
    say "making the virtual environment .venv ($("$python" --version))"
    if [[ -z $(closed_to_others "$PWD/x") ]] && closed=$(closed_to_others "$(readlink -f "$python")") && [[ -n $closed ]]; then
        say "note: other users cannot start $python, because of $closed. To share this checkout: PATH=/usr/bin:\$PATH $0"
    fi
    rm -rf "$new" .venv.old
    "$python" -m venv --prompt .venv "$new" || fail "$python -m venv failed: apt-get install python3-venv"
    local pip=("$new/bin/python" -m pip --disable-pip-version-check -q)
    install_locked "$new" || fail "Python packages could not be installed: no network, or a full disk?"
    if ! grep -q '^uv==' "$lock"; then rm -rf "$new"/bin/uv{,x} "$new"/lib/python*/site-packages/uv{,-*}; fi
    # On all PUs. Packages have templates that are not Python, which pip ignores as well, and a quarter of all
    # source is tests, or next to an extension module of the same name.
    "$new/bin/python" -m compileall -qq -j 0 -x "/(tests|${uncompiled// /|})/" "$new/lib" || true
    "${pip[@]}" install --no-deps --no-build-isolation -e . || fail "firsttouch itself could not be installed"
    "$python" - "$PWD/$new" "$PWD/.venv" <<'PYTHON'
import sys
from pathlib import Path

old, new = (path.encode() for path in sys.argv[1:])
folder = Path(sys.argv[1])
for file in [*(folder / "bin").iterdir(), folder / "pyvenv.cfg"]:
    if file.is_file() and not file.is_symlink():
        text = file.read_bytes()
        if old in text:
            file.write_bytes(text.replace(old, new))
PYTHON
    if [[ -x .venv/bin/firsttouch-probe ]]; then cp -p .venv/bin/firsttouch-probe "$new/bin/"; fi
    recipe "$lock" >"$new/recipe"
    if [[ -e .venv || -L .venv ]]; then mv -T .venv .venv.old; fi
    mv -T "$new" .venv
    rm -rf .venv.old
}

# ---------------------------------------------------------------- the native probe
probe_recipe() { # includes the recipe of .venv: a new .venv lacks the probe
    { cat .venv/recipe && find probe -type f -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1
}
build_probe() {
    say "building the native probe (firsttouch-probe)"
    local pip=(.venv/bin/python -m pip --disable-pip-version-check -q install --force-reinstall --no-deps
        --no-build-isolation --config-settings="build-dir=$PWD/.cache/probe"
        --config-settings=cmake.define.WERROR=ON ./probe)
    if ! "${pip[@]}" &>"$log"; then
        # Files of an earlier checkout or compiler may be the cause: try again without them.
        rm -rf .cache/probe
        "${pip[@]}" &>"$log" || fail_with_log "the native probe cannot be built"
    fi
    probe_recipe >.venv/probe-recipe
}

# ---------------------------------------------------------------- STREAM
# STREAM is not in Debian, because only its author distributes it. If it cannot be downloaded, its check is skipped.
build_stream() {
    local url checksum elements source=$private/stream.c model=()
    read -r url checksum < <(grep -v '^#' setup/stream.txt)
    say "building STREAM"
    if ! "$python" -c 'import sys, urllib.request as net
open(sys.argv[2], "wb").write(net.urlopen(sys.argv[1], timeout=10).read())' "$url" "$source" &>"$log"; then
        say "STREAM is left out: $url cannot be downloaded"
    elif ! sha256sum --status -c <<<"$checksum  $source"; then
        say "STREAM is left out: the checksum of $url is not that of setup/stream.txt"
    else
        # The default code model cannot address static arrays of more than 2 GiB.
        if [[ $(uname -m) == x86_64 ]]; then model=(-mcmodel=medium); fi
        # Each array is at least four times the last-level caches (STREAM's rule), in elements of 8 bytes.
        elements=$(.venv/bin/firsttouch-probe topology | "$python" -c 'import json, sys
print(max(80_000_000, json.load(sys.stdin)["host"]["all_caches_bytes"] // 2))') || fail "the probe cannot run"
        gcc -O3 -fopenmp "${model[@]}" "-DSTREAM_ARRAY_SIZE=$elements" -DNTIMES=10 "$source" \
            -o "$private/stream" &>"$log" || fail_with_log "STREAM cannot be built"
        install "$private/stream" .venv/bin/.stream && mv .venv/bin/.stream .venv/bin/stream
    fi
    cp setup/stream.txt .venv/stream-recipe
}

# ---------------------------------------------------------------- a checkout of another user
# A user who may not write into the checkout uses what its owner has made.
use_as_it_is() {
    local owner python=.venv/bin/python
    owner=$(stat -c %U .)
    if [[ -e .venv/recipe ]] && ! $python -c '' 2>/dev/null; then
        fail "you cannot start .venv's $(readlink $python): $owner runs PATH=/usr/bin:\$PATH setup/setup.sh"
    fi
    if ! $python -c 'import firsttouch' 2>/dev/null || [[ ! -x .venv/bin/firsttouch-probe ]]; then
        fail "$PWD cannot be written, and its .venv is not complete: its owner, $owner, runs setup/setup.sh $group"
    fi
    local variables="FIRSTTOUCH_OUT=FOLDER FIRSTTOUCH_DATA=FOLDER FIRSTTOUCH_ADVICE=FOLDER"
    say "$PWD is $owner's, and complete. To write into folders of yours: export $variables"
}

# ---------------------------------------------------------------- main
if [[ ! -w . ]] || [[ -e .cache && ! -w .cache ]]; then
    use_as_it_is
    exit
fi
# Of two concurrent runs, the second one waits and then has nothing to do.
mkdir -p .cache
private=$(mktemp -d)
trap 'rm -rf "$private"' EXIT
log=$private/log
exec 9>.cache/setup.lock
flock 9
mapfile -t packages < <(missing)
if ((${#packages[@]})); then
    install_packages "${packages[@]}"
    if command -v apt-get >/dev/null; then
        mapfile -t packages < <(missing)
        if [[ ${packages[*]} == python3-venv ]]; then find_python; fi
        if ((${#packages[@]})); then fail "still missing after the installation: ${packages[*]%%|*}"; fi
    fi
fi
find_python
if ! venv_is_current; then make_venv; fi
if [[ ! -x .venv/bin/firsttouch-probe || $(cat .venv/probe-recipe 2>/dev/null) != "$(probe_recipe)" ]]; then
    build_probe
fi
if [[ $group =~ ^(run|dev|test)$ ]] && ! command -v stream >/dev/null && ! cmp -s setup/stream.txt .venv/stream-recipe; then
    build_stream
fi
