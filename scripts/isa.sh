#!/usr/bin/env bash
# Tests of the instruction sets that the usual machines lack, in one go, on a machine that has a compiler, CMake,
# Ninja and Python and no packages:
#   isa.sh carry DIR        here: the packages that the build needs, into DIR
#   isa.sh run OUT [DIR]    there: builds the tests of kernels and runs them, and the golden digests, on every instruction
#                           set of the machine; OUT gets the table that is printed, and the logs. BUILD names the build.
# Exit code 1: a test failed, or an instruction set ran none.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 4
build=${BUILD:-build/isa}

carry() {
  local to=$1 prefix=${PREFIX:-/usr} libraries
  scripts/gpu.sh carry "$to" >/dev/null || return 4
  libraries=$(dirname "$(find "$prefix/lib" -name librapidcheck.a | head -n 1)")
  mkdir -p "$to/${libraries#"$prefix/"}/cmake"
  cp -r "$prefix"/include/{gtest,gmock,rapidcheck,rapidcheck.h} "$to/include/"
  cp "$libraries"/lib{gtest,gtest_main,gmock,gmock_main,rapidcheck}.a "$to/${libraries#"$prefix/"}/"
  cp -r "$libraries"/cmake/{GTest,rapidcheck} "$to/${libraries#"$prefix/"}/cmake/"
  du -sh "$to"
}

configure() {
  local packages=() config
  if [[ -n ${1:-} ]]; then
    packages=("-DCMAKE_PREFIX_PATH=$(readlink -f "$1")")
    for config in GTest rapidcheck; do
      packages+=("-D${config}_DIR=$(readlink -f "$(dirname "$(find "$1" -name "${config}Config.cmake" | head -n 1)")")")
    done
  fi
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHADOWGRAPH_BUILD_TESTS=ON "${packages[@]}" &&
    cmake --build "$build" --parallel "$(nproc)" --target kernels_tests fuzz_tests shadowgraph_cli
}

# count PATTERN LOG: the number in the first line "[PATTERN] N test..." of a GoogleTest log; 0 without one.
count() { sed -nE "s/^\[ *$1 *\] ([0-9]+) tests?.*/\1/p" "$2" | head -n 1 | grep . || echo 0; }

# run_tests ISA PROGRAM FILTER: a line of the table. Not 0: a test failed, or none ran.
run_tests() {
  local log=$out/$1-$2.txt code=0 ran
  SHADOWGRAPH_ISA=$1 "$build/tests/$2" --gtest_filter="$3" >"$log" 2>&1 || code=$?
  ran=$(count '=+' "$log")
  printf '%-12s %-14s %6d ran %6d passed %6d failed %6d skipped   exit %d\n' "$1" "$2" "$ran" \
    "$(count PASSED "$log")" "$(count FAILED "$log")" "$(count SKIPPED "$log")" "$code"
  ((code == 0 && ran > 0))
}

run() {
  local isa isas job jobs=() status=0
  out=$1
  configure "${2:-}" >"$out/build.txt" 2>&1 || {
    tail -n 20 "$out/build.txt"
    return 4
  }
  "$build/tools/shadowgraph" list targets
  mapfile -t isas < <("$build/tools/shadowgraph" list targets | awk 'NR > 1 && !/not on this machine/ { print $1 }')
  # All at once: one of them keeps few processors busy.
  for isa in "${isas[@]}"; do
    run_tests "$isa" kernels_tests '*' & jobs+=($!)
    run_tests "$isa" fuzz_tests 'GoldenBits.*' & jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || status=1; done
  ((${#isas[@]} > 0)) && return "$status"
}

case ${1:-} in
  carry) carry "${2:?a folder}" ;;
  run)
    mkdir -p "${2:?a folder for logs}"
    run "$2" "${3:-}" | tee "$2/summary.txt"
    ;;
  *)
    sed -n "2,7s/^# //p" "$0"
    exit 2
    ;;
esac
