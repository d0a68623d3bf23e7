#!/usr/bin/env bash
# lint.sh [--all]: every check of the sources; goes on after a failure and says at the end what failed.
# clang-tidy reads the files that changed since origin/main (on it: since the commit before), or all.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 4
failed=()

check() {
  local name=$1
  shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}

sources() { git ls-files -co --exclude-standard -- "$@" | sort -u; }

format() {
  local files file wrong=0
  mapfile -t files < <(sources '*.h' '*.cc' '*.inl')
  for file in "${files[@]}"; do
    clang-format --dry-run -Werror "$file" 2>/dev/null && continue
    echo "$file: not formatted; clang-format -i $file"
    wrong=1
  done
  echo "${#files[@]} files"
  return "$wrong"
}

changed_sources() {
  local base head
  head=$(git rev-parse -q --verify HEAD)
  base=$(git merge-base HEAD origin/main 2>/dev/null)
  [[ -n $base && $base != "$head" ]] || base=$(git rev-parse -q --verify HEAD~1)
  if [[ -z $base ]]; then
    sources '*.cc'
  else
    { git diff --name-only --diff-filter=d "$base" -- '*.cc' && git ls-files -o --exclude-standard -- '*.cc'; } | sort -u
  fi
}

# Headers are checked through the files that include them; clang's own compile commands are used, file by file: so each
# source is also seen to stand alone, which a build in groups does not show.
tidy() {
  local files
  if [[ ${1:-} == --all ]]; then
    mapfile -t files < <(sources '*.cc')
  else
    mapfile -t files < <(changed_sources)
  fi
  echo "${#files[@]} files"
  ((${#files[@]})) || return 0
  cmake --preset clang -B build/tidy -DSHADOWGRAPH_UNITY=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null || return 1
  # Only what this configuration compiles: a package's consumer or a libFuzzer target has other flags.
  mapfile -t files < <(printf '%s\n' "${files[@]}" |
    python3 -c 'import json, os, sys
known = {os.path.relpath(e["file"]) for e in json.load(open("build/tidy/compile_commands.json"))}
print("\n".join(f for f in sys.stdin.read().split("\n") if f in known))')
  printf '%s\n' "${files[@]}" | xargs -r -P "$(nproc)" -n 1 clang-tidy -p build/tidy --quiet 2> >(
    grep -vE '^[0-9]+ warnings? generated|^$|Suppressed|Use -header-filter' >&2)
}

shell() { sources dev .ci/run '*.sh' | xargs shellcheck; }

# What the compiler reads for the program; how long that takes depends on the machine.
cost() {
  cmake --preset release -B build/cost >/dev/null && python3 scripts/build_cost.py build/cost shadowgraph_cli
}

check format format
check layers python3 scripts/layers.py
check comments python3 scripts/comments.py
check edges python3 scripts/edges.py
check definitions python3 scripts/one_definition.py
check sizes python3 scripts/sizes.py
check prices python3 scripts/prices.py
check cost cost
check references python3 scripts/references.py
check shell shell
check tidy tidy "$@"

if ((${#failed[@]})); then
  printf 'lint: failed: %s\n' "${failed[*]}"
  exit 1
fi
echo 'lint: clean'
