#!/usr/bin/env bash
# rust_test.sh RUSTC SOURCE LIBRARY_FOLDER BUILD_FOLDER: compiles SOURCE with nothing but rustc, and runs it.
set -euo pipefail
rustc=$1 source=$2 libraries=$3 build=$4
if [[ ! -x $rustc ]]; then
  echo "skipped: no rustc (Debian's package rustc)"
  exit 77
fi
"$rustc" --edition 2021 -D warnings -L "$libraries" -o "$build/c_rust" "$source"
LD_LIBRARY_PATH=$libraries "$build/c_rust"
