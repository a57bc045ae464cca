#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. The last line is "N passed, N failed"; the
# exit code is 0 only if at least one test ran and none failed.
#
#   bash tests/run.sh [--cuda]    --cuda: the program for GPUs, built in build/cuda with PyTorch's wheel, which is fetched
#                                 (3 GB); no test needs a GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release options=(--tests)
if [[ ${1:-} == --cuda ]]; then
  build=build/cuda options+=(--cuda)
  shift
fi
if (($# > 0)); then
  echo "tests/run.sh: unknown option '$1'; it takes --cuda" >&2
  exit 2
fi

bash jobs/build.sh "${options[@]}"

# Tests tell ctest how many processes they start, so that this many run at a time in all.
log=$build/tests.log
status=0
ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --no-tests=error 2>&1 |
  tee "$log" || status=$?

# ctest's own count, "98% tests passed, 2 tests failed out of 100", takes skipped tests for passed ones.
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
((skipped > 0)) && echo "skipped: $skipped"
echo "$passed passed, $failed failed"
exit "$status"
