#!/usr/bin/env bash
# Sets up and builds headspan in build/release: installs missing packages, configures, compiles.
#
#   bash jobs/build.sh [--tests] [--cuda | --clang] [TARGET...]
#
#       no TARGET: everything
#       --tests:   installs the packages of the tests too
#       --cuda:    for GPUs, in build/cuda, with PyTorch's wheel (jobs/pytorch.sh)
#       --clang:   with Clang instead of GCC, in build/clang
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

groups=(build) preset=release
while [[ ${1:-} == --* ]]; do
  case $1 in
    --tests) groups+=(test fetch) ;;
    --cuda) preset=cuda ;;
    --clang) groups+=(clang) preset=clang ;;
    *) echo "build: unknown option '$1'; known: --tests --cuda --clang" >&2; exit 2 ;;
  esac
  shift
done
bash jobs/packages.sh "${groups[@]}"

for tool in cmake ninja; do
  command -v "$tool" > /dev/null && continue
  echo "build: $tool is not in the PATH; install it and start again" >&2
  exit 1
done

configure=(cmake --preset "$preset")
if [[ $preset == cuda ]]; then
  torch=$(bash jobs/pytorch.sh)
  configure+=(-DHEADSPAN_TORCH_DIR="$torch")
fi
echo "build: configuring" >&2
"${configure[@]}"

# One compiler per core, or fewer if memory is short: a file with LibTorch's headers takes 1.5 GiB.
jobs=$(nproc)
free_kib=0
while read -r key value _; do
  [[ $key == MemAvailable: ]] && free_kib=$value
done < /proc/meminfo
fitting=$((free_kib / (3 * 512 * 1024)))
((fitting < 1)) && fitting=1
((jobs > fitting)) && jobs=$fitting
echo "build: compiling with $jobs at a time" >&2
NINJA_STATUS='[%f/%t %es] ' cmake --build "build/$preset" --parallel "$jobs" ${1:+--target "$@"}
