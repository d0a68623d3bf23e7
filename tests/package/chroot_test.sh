#!/usr/bin/env bash
# chroot_test.sh [SUITE [MIRROR [KEYRING]]]: what `./dev dist` made, in a bare Linux without compiler and network, of a suite
# that debootstrap knows (default bookworm; jammy has an older C library). The wheel installs, imports and judges; the program
# unpacks and gives its verdict within 30 seconds; the action's steps run. Needs root and debootstrap; roots are kept in build/roots.
set -euo pipefail
root=$(readlink -f "$(dirname "$0")/../..")
suite=${1:-bookworm} bare=$root/build/roots/${1:-bookworm}
options=("--variant=minbase" "--include=python3-venv,python3-yaml,xz-utils")
[[ $suite != jammy ]] || options+=("--components=main,universe")
[[ -z ${3:-} ]] || options+=("--keyring=$3")
if [[ ! -e $bare/made ]]; then
  rm -rf "$bare"
  mkdir -p "$bare"
  debootstrap "${options[@]}" "$suite" "$bare" ${2:+"$2"} >"$bare.log" 2>&1 || { tail -n 3 "$bare.log" && exit 4; }
  touch "$bare/made"
fi
rm -rf "$bare/work" && mkdir -p "$bare/work" "$bare/source"
cp "$root"/build/dist/*.whl "$root"/build/dist/*.tar.xz "$root/tests/package/inside.sh" "$bare/work/"
# shellcheck disable=SC2016 # the inner shell's own
unshare --net --mount bash -euc 'mount --bind "$1" "$2/source"
  exec chroot "$2" env -i HOME=/work PATH=/usr/bin:/bin bash /work/inside.sh' _ "$root" "$bare"
