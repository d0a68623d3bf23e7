#!/usr/bin/env bash
# archive.sh PROGRAM FOLDER: packs the program for any Linux with glibc 2.34 or later, with its pages, into
# FOLDER/shadowgraph-VERSION-linux-MACHINE.tar.xz. The same program gives the same bytes.
set -euo pipefail
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
program=$(readlink -f "$1") folder=$2
python3 "$root/scripts/portable.py" --at-most 2.34 "$program" >/dev/null
version=$(sed -n 's/^#define SHADOWGRAPH_VERSION "\(.*\)"/\1/p' "$root/include/shadowgraph/version.h")
name=shadowgraph-$version-linux-$(uname -m)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

mkdir -p "$folder" "$stage/$name/bin"
strip -o "$stage/$name/bin/shadowgraph" "$program"
chmod 755 "$stage/$name/bin/shadowgraph"
cp -r "$root"/{LICENSE,NOTICE,CHANGELOG.md,README.md,docs} "$stage/$name"
tar -C "$stage" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w -cf - "$name" |
  xz -9 >"$folder/$name.tar.xz"
