#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests that a change is checked with. The last line is "N passed, N
# failed"; the exit code is 0 only if at least one test ran and none failed.
#
#   bash tests/run.sh [--all] [--cuda]
#
#       --all:   the slow tests too, without the quick ones that these repeat
#       --cuda:  only those on simulated GPUs, with the program built for GPUs in build/cuda on PyTorch's wheel, which is
#                fetched (3 GB); with --all every test of that build. No test needs a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=false cuda=false
for word in "$@"; do
  case $word in
    --all) all=true ;;
    --cuda) cuda=true ;;
    *) echo "tests/run.sh: unknown option '$word'; it takes --all and --cuda" >&2; exit 2 ;;
  esac
done

build=build/release options=(--tests) targets=()
$cuda && build=build/cuda options+=(--cuda)
if $all; then
  chosen=(--label-exclude '^quick$')
elif $cuda; then
  targets=(gpu_tests) chosen=(--label-regex '^gpus$')
else
  chosen=(--label-exclude '^slow$')
fi
bash jobs/build.sh "${options[@]}" "${targets[@]}"

# A start takes a second, and the tests start the program thousands of times. It starts twice if OpenBLAS has not chosen the
# fastest kernels, unless it is told which ones are.
if [[ -z ${OPENBLAS_CORETYPE:-} && $("$build/headspan" --version) =~ OpenBLAS.*,\ (.*)\ kernels ]]; then
  export OPENBLAS_CORETYPE=${BASH_REMATCH[1]}
fi
# Debian's LibTorch names OpenCV and FFmpeg among its libraries, of which it uses nothing, and these load 190 more: a third of
# a start. The tests have empty ones in their place.
unused=$PWD/$build/unused_libraries
mkdir -p "$unused"
torch=$(ldd "$build/headspan" | awk '$1 ~ /^libtorch_cpu/ { print $3 }')
for library in $(ldd -u "$torch" 2> /dev/null | grep -oE 'lib(opencv_|av|sw)[^/]+$'); do
  [[ -f $unused/$library ]] || cc -shared -Wl,-soname,"$library" -o "$unused/$library" -x c /dev/null
done
export LD_LIBRARY_PATH=$unused${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Tests tell ctest how many cores they keep busy (tests/CMakeLists.txt), so that few tests share a core.
log=$build/tests.log
status=0
ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --no-tests=error "${chosen[@]}" 2>&1 |
  tee "$log" || status=$?

# ctest's own count, "98% tests passed, 2 tests failed out of 100", counts skipped tests as passed.
total=0 failed=0 skipped=0
while read -r line; do
  if [[ $line =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    failed=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
  elif [[ $line == *"(Skipped)" ]]; then
    skipped=$((skipped + 1))
  fi
done < "$log"
passed=$((total - failed - skipped))
((passed == 0 && status == 0)) && status=1
# Programs that pass skip cases too; what they print is only in ctest's own log.
cases=$(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped\r?$/ { sum += $5 } END { print sum + 0 }' \
  "$build/Testing/Temporary/LastTest.log") || cases=0
((skipped > 0)) && echo "skipped: $skipped"
((cases > 0)) && echo "skipped cases within other tests: $cases"
$all || $cuda || echo "the slow tests were left out: bash tests/run.sh --all"
echo "$passed passed, $failed failed"
exit "$status"
