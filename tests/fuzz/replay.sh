#!/usr/bin/env bash
# Gives the readers of files the inputs that fuzzing has kept, and those that it begins with.
#
#   bash tests/fuzz/replay.sh REPLAY HEADSPAN
set -euo pipefail
replay=$(realpath "$1") program=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/corpora"
tar -xzf tests/data/fuzz.tar.gz -C "$work/corpora"
/usr/bin/python3 -B tests/fuzz/seeds.py "$work/corpora"
bash tests/fuzz/make_bases.sh "$program" "$work/bases"
status=0
HEADSPAN_FUZZ_BASES=$work/bases "$replay" "$work/corpora" "$work/scratch" > "$work/log" || status=$?
if ((status == 0)); then
  grep ' inputs, ' "$work/log"
else
  tail -n 1 "$work/log"
fi
exit "$status"
