#!/usr/bin/env bash
# What a GPU has to show, in one go, on a machine that has nvcc, CMake and Ninja and no packages:
#   gpu.sh carry DIR           here: the header-only packages that the build needs, into DIR
#   gpu.sh run OUT DIR [STEP...]  there: builds, and runs every step (or those named); OUT gets a summary and the logs
# A step that fails stops no other; the last lines say how each ended. Steps, with the most seconds that each may take
# (the build 400): machine 30, conformance 330, bench 120, calls 150, histories 60, faults 500, memcheck, racecheck and
# initcheck 60 each. What is built once is found again.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 4
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
build=build/gpu
cli=$build/tools/shadowgraph
logs=$build/logs
out=

# A CMake package of headers alone: NAME, its target, what a user of it compiles with.
package() {
  local dir=$1/lib/cmake/$2
  mkdir -p "$dir"
  cat >"$dir/$2Config.cmake" <<PACKAGE
if(NOT TARGET $3)
  add_library($3 INTERFACE IMPORTED)
  set_target_properties($3 PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "\${CMAKE_CURRENT_LIST_DIR}/../../../include"
    INTERFACE_INCLUDE_DIRECTORIES "\${CMAKE_CURRENT_LIST_DIR}/../../../include"
    INTERFACE_COMPILE_DEFINITIONS "$4")
endif()
PACKAGE
}

carry() {
  local to=$1 prefix=${PREFIX:-/usr}
  mkdir -p "$to/include"
  cp -r "$prefix"/include/{CLI,fmt,nlohmann} "$to/include/"
  cp -r "$prefix/include/eigen3/Eigen" "$to/include/"
  package "$to" CLI11 CLI11::CLI11 ""
  package "$to" fmt fmt::fmt-header-only FMT_HEADER_ONLY=1
  package "$to" nlohmann_json nlohmann_json::nlohmann_json ""
  package "$to" Eigen3 Eigen3::Eigen ""
  du -sh "$to"
}

# step NAME LIMIT COMMAND...: its output in NAME.txt of the logs, how it ended in the summary; both in OUT.
summary=()
step() {
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  # shellcheck disable=SC2016 # the inner shell's own
  timeout --kill-after=10 "$limit" bash -c '"$@"' _ "$@" >"$logs/$name.txt" 2>&1 || code=$?
  summary+=("$(printf '%-12s exit %3d %4d s  %s' "$name" "$code" $((SECONDS - start)) "$(tail -n 1 "$logs/$name.txt")")")
  printf '%s\n' "${summary[@]}" >"$out/summary.txt"
  tar -C "$logs" -czf "$out/logs.tar.gz" .
}

configure() {
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSHADOWGRAPH_CUDA=ON "-DCMAKE_PREFIX_PATH=$1" \
    "-DSHADOWGRAPH_CUDA_ARCHITECTURES=${ARCHITECTURES:-90a}" &&
    cmake --build "$build" --parallel "$(nproc)" --target shadowgraph_cli gpu_bench
}

# A tool of compute-sanitizer over calls, each eagerly and replayed, of the fast bodies, too; it says what it saw when
# they end.
sanitizer() {
  local code=0
  compute-sanitizer --tool "$1" --error-exitcode 9 "$build/tools/gpu_bench" --check || code=$?
  compute-sanitizer --tool "$1" --error-exitcode 9 "$cli" fuzz --device cuda --backend kernels --cases 400 --seconds 30 \
    --threads 2 --quiet && return $code
}

run_steps() {
  local want=" $* "
  wanted() { [[ $want == "  " || $want == *" $1 "* ]]; }
  wanted machine && step machine 30 bash -c 'nvidia-smi; nvcc --version; g++ --version; nproc'
  wanted conformance && step conformance 330 "$cli" conformance --device cuda --record "$logs/answers.jsonl" --quiet
  wanted bench && step bench 120 "$build/tools/gpu_bench"
  wanted calls && step calls 150 "$cli" fuzz --device cuda --backend kernels --cases "${CASES:-215000}" --seconds 140 --quiet
  wanted histories && step histories 60 "$cli" fuzz --device cuda --cases 4000 --seconds 40 --seed 3 --quiet
  wanted faults && step faults 500 "$cli" faults --device cuda --budget-seconds 0.6
  for tool in memcheck racecheck initcheck; do wanted "$tool" && step "$tool" 60 sanitizer "$tool"; done
}

run() {
  out=$1
  mkdir -p "$out" "$logs"
  step build 400 configure "$(readlink -f "$2")"
  [[ -x $cli ]] && run_steps "${@:3}"
  cat "$out/summary.txt"
}

export build cli
export -f configure sanitizer
case ${1:-} in
  carry) carry "${2:?a folder}" ;;
  run) run "${2:?a folder for logs}" "${3:?the carried folder}" "${@:4}" ;;
  *)
    sed -n "2,7s/^# //p" "$0"
    exit 2
    ;;
esac
