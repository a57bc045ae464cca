#!/usr/bin/env bash
# Run by rattler-build in a copy of the source. CMAKE_ARGS names the prefix.
set -euo pipefail

# headspan compiles its kernels for several processors and chooses one when it runs; for that, everything else has to be
# compiled for the oldest.
[[ ${target_platform:-} != linux-64 ]] || CXXFLAGS+=" -march=x86-64"

# shellcheck disable=SC2086  # a list
cmake $CMAKE_ARGS -G Ninja -B build/conda -DCMAKE_BUILD_TYPE=Release -DBLA_VENDOR=OpenBLAS \
  -DHEADSPAN_BUILD_TESTING=OFF -DHEADSPAN_CUDA=off -DHEADSPAN_TORCH_DIR="$PREFIX"
cmake --build build/conda --parallel "$CPU_COUNT"
cmake --install build/conda
