#!/usr/bin/env bash
# Measures what options add to a study of SmolLM2 (checkpoints/smollm2, which must have been fetched): the measures of
# similarity, and a reference of equal size, with and without its saved Grams. Prints a table (Markdown) on standard output:
# medians of ROUNDS rounds in which all take turns, in seconds of the processor, which other programs disturb less than
# those of the clock. The exit code is 0 if every requirement is met.
#
#   bash tests/bench/study_options.sh [PROGRAM [ROUNDS [STREAMS...]]]
#
# PROGRAM: headspan (default: build/release/headspan). ROUNDS: default 3. STREAMS: values of predict.streams (default: k,v
# and k,q,v). 8192 tokens, a quarter held out, all else as it is without keys. On two cores a round takes ten minutes.
set -euo pipefail
program=${1:-} rounds=${2:-3}
kinds=("${@:3}")
((${#kinds[@]})) || kinds=("k,v" "k,q,v")
[[ -n $program ]] && program=$(realpath "$program")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${program:-$PWD/build/release/headspan}
model=checkpoints/smollm2/model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# study NAME STREAMS OPTION...: prints the seconds of the processor
study() {
  local name=$1 streams=$2
  shift 2
  echo "== headspan study, $streams, $name" >&2
  # shellcheck disable=SC2016
  TIMEFORMAT='%U %S'
  { time "$program" study --model.path "$model" --model.name "$name" --tokens.path checkpoints/smollm2/tokens/docs.fit.bin \
    --tokens.limit 8192 --predict.streams "$streams" --output.directory "$work" --output.overwrite true "$@" \
    > "$work/output" 2> "$work/log"; } 2> "$work/time" || { cat "$work/log" >&2; exit 1; }
  awk '{ print $1 + $2 }' "$work/time"
}

for kind in "${kinds[@]}"; do
  study saved "$kind" --output.save_gram true > "$work/ignored"
  for ((round = 1; round <= rounds; ++round)); do
    for name in alone similarity reference grams; do
      case $name in
        alone) options=() ;;
        similarity) options=(--predict.similarity "cka,cca,procrustes") ;;
        reference) options=(--cross.model "$model") ;;
        grams) options=(--cross.model "$model" --cross.grams "$work/saved/model.gram.h5") ;;
      esac
      echo "$kind $name $(study "$name" "$kind" "${options[@]}")" >> "$work/lines"
    done
  done
done

python3 - "$work/lines" << 'END'
import sys
from statistics import median

TITLES = {"similarity": ("predict.similarity = cka,cca,procrustes", 1.15), "reference": ("cross.model, of equal size", 2.6),
          "grams": ("the same with cross.grams", 2.6)}
times = {}
for line in open(sys.argv[1]):
    streams, name, seconds = line.split()
    times.setdefault(streams, {}).setdefault(name, []).append(float(seconds))
missed = 0
print("| streams | with | seconds of the processor | without | ratio | required | met |\n| --- | --- | --- | --- | --- | --- | --- |")
for streams, by_name in times.items():
    for name, (title, most) in TITLES.items():
        ratio = median(b / a for a, b in zip(by_name["alone"], by_name[name]))
        missed += ratio > most
        print(f"| {streams} | {title} | {median(by_name[name]):.1f} | {median(by_name['alone']):.1f} | {ratio:.2f} | <= {most} | "
              f"{'yes' if ratio <= most else 'no'} |")
sys.exit(1 if missed else 0)
END
