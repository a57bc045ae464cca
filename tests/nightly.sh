#!/usr/bin/env bash
# Runs, one after another, all that is too long for a change: about a day on 2 cores. Prints a table of what was run; the logs,
# which hold the tables of each, are in build/nightly. The exit code is 1 if anything failed.
#
#   bash tests/nightly.sh [PART...]
#
#       no PART:     all of them
#       all, gpus:   tests/run.sh --all, and on simulated GPUs
#       toolchains:  tests/toolchains.sh: other compilers and libraries, sanitizers
#       fuzz, soak:  tests/fuzz.sh, tests/soak.sh
#       pythons:     tests/analysis/pythons.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

declare -A commands=([all]="tests/run.sh --all" [gpus]="tests/run.sh --cuda --all" [toolchains]=tests/toolchains.sh [fuzz]=tests/fuzz.sh
  [soak]=tests/soak.sh [pythons]=tests/analysis/pythons.sh)
parts=("$@")
((${#parts[@]} > 0)) || parts=(all gpus toolchains fuzz soak pythons)
for part in "${parts[@]}"; do
  [[ -n ${commands[$part]:-} ]] || { echo "tests/nightly.sh: unknown part '$part'; known: ${!commands[*]}" >&2; exit 2; }
done

mkdir -p build/nightly
failed=0
echo "| part | exit code | minutes |"
echo "| --- | --- | --- |"
for part in "${parts[@]}"; do
  code=0 start=$SECONDS
  read -ra command <<< "${commands[$part]}"
  bash "${command[@]}" > "build/nightly/$part.log" 2>&1 || code=$? failed=1
  echo "| $part | $code | $(((SECONDS - start) / 60)) |"
done
exit "$failed"
