#!/usr/bin/env bash
# package_test.sh MODE BUILD SOURCE CXX: builds and runs a consumer in an empty folder.
#   installed     installs BUILD, with its tools, and finds it with find_package; so does a project that has a backend
#   pkg-config    installs BUILD and compiles by hand with what pkg-config says
#   subdirectory  adds SOURCE to its own build, as a shared library
#   source        does what docs/install.md says where nothing but a compiler, CMake and Ninja is
set -euo pipefail
mode=$1 build=$2 source=$3 cxx=$4
here=$(dirname "$0")
work=$(mktemp -d)
# Beside BUILD: to ccache, which knows a file by its path from there, the objects of SOURCE are BUILD's.
folder=${build}_$mode
trap 'rm -rf "$work" "$folder"' EXIT

# build PROJECT FOLDER OPTIONS...
build() {
  cmake -S "$1" -B "$2" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_BUILD_TYPE=Release "${@:3}"
  cmake --build "$2" --parallel 2
}
consumer() {
  build "$here" "$folder" "$@"
  "$folder/consumer"
}

case $mode in
  installed)
    cmake --install "$build" --prefix "$work/prefix"
    consumer -DCMAKE_PREFIX_PATH="$work/prefix"
    "$folder/kernel_test"
    "$folder/judge_step"
    build "$source/examples/external_backend" "$work/external" -DCMAKE_PREFIX_PATH="$work/prefix"
    "$work/external/external_backend"
    [[ -n $(find "$work/prefix" -name shadowgraph.h -path '*/include/shadowgraph.h') ]] || exit 0 # no DLPack header
    cmake -S "$here/c" -B "$work/c" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix"
    cmake --build "$work/c"
    "$work/c/consumer"
    ;;
  pkg-config)
    cmake --install "$build" --prefix "$work/prefix"
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name shadowgraph.pc)")
    export PKG_CONFIG_PATH
    read -ra flags < <(pkg-config --cflags --libs shadowgraph)
    "$cxx" -std=c++20 "$here/main.cc" -o "$work/consumer" "${flags[@]}"
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir shadowgraph)
    export LD_LIBRARY_PATH
    "$work/consumer"
    pkg-config --exists shadowgraph_c || exit 0 # no DLPack header
    read -ra flags < <(pkg-config --cflags --libs shadowgraph_c)
    cc -std=c99 "$here/../c_api/smoke.c" -o "$work/c_consumer" "${flags[@]}"
    "$work/c_consumer"
    ;;
  subdirectory) consumer -DSHADOWGRAPH_SOURCE="$source" -DSHADOWGRAPH_UNITY=ON -DBUILD_SHARED_LIBS=ON ;;
  source)
    page="$source"/docs/install.md
    export CXX=$cxx CMAKE_GENERATOR=Ninja
    without=(-DCMAKE_DISABLE_FIND_PACKAGE_{Eigen3,fmt,nlohmann_json,CLI11}"=ON" -DSHADOWGRAPH_WERROR=ON)
    sed -nE 's/^    (cmake .*)/\1/p' "$page" | sed -E "s|-S \.|-S '$source' ${without[*]}|
      s|(-B\|--build\|--install) build|\1 '$folder'|" >"$work/commands"
    [[ $(wc -l <"$work/commands") == 3 ]]
    (cd "$work" && bash -ex commands)
    mkdir "$work/mine"
    # shellcheck disable=SC2016 # Markdown's
    sed -n '/^```cmake$/,/^```$/{/^```/!p}' "$page" >"$work/mine/CMakeLists.txt"
    cp "$source/examples/quickstart.cc" "$work/mine/main.cc"
    build "$work/mine" "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix"
    "$work/build/mine"
    sed -i 's/CONFIG REQUIRED/& COMPONENTS testing/' "$work/mine/CMakeLists.txt"
    if cmake -S "$work/mine" -B "$work/build" 2>"$work/refused"; then exit 1; fi
    grep 'without the component testing' "$work/refused"
    ;;
  *) exit 2 ;;
esac
