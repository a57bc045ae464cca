#!/usr/bin/env bash
# Prints what each part of the archives' codec is worth: KL with the whole codec and without one part of it. Parts that no job
# can leave out are taken from a copy of the sources, which is built once more for each. Takes an hour.
#
#   bash tests/bench/archive_ablations.sh FOLDER [MODEL FIT.bin TEXT.bin...]
#   bash tests/bench/archive_ablations.sh --check
#
# FOLDER keeps the copy, the codecs and the summaries; what is there is not made again. Without MODEL: SmolLM2 on docs.
# --check: only sees that every change still fits the sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# change NAME SOURCES: changes the copy; fails unless each command has found its line.
change() {
  local source=$2/src/app/archive
  case $1 in
    one_class) # every token is in the first class
      edit "$source/codec_statistics.cpp" '/broadcast(work.group->class_edges/i\    work.group->class_edges.assign(kTokenClasses - 1, 3e38F);' ;;
    plain_metric) # all columns count alike
      edit "$source/calibrate_codec.cpp" 's/if (algorithm == ArchiveAlgorithm::kvtc)$/if (algorithm != ArchiveAlgorithm::kvtc || codec.layers > 0)/' ;;
    rotated_keys) # keys are taken after the rotary embedding
      edit "$source/calibrate_codec.cpp" 's/request.point = CapturePoint::normed;/request.point = CapturePoint::roped;/'
      edit "$source/codec_coefficients.cpp" 's/capture<float>(batch, CapturePoint::normed,/capture<float>(batch, CapturePoint::roped,/'
      edit "$source/codec_rotary.cpp" 's/codec.rotary_of_layer.push_back(.*/codec.rotary_of_layer.push_back(-1);/' ;;
  esac
}

edit() {
  cp "$1" "$1.before"
  sed -i "$2" "$1"
  if cmp -s "$1" "$1.before"; then
    echo "archive_ablations: a change no longer fits ${1##*/src/}: $2" >&2
    return 1
  fi
}

# copy_sources FOLDER: makes the copy, or takes back its change.
copy_sources() {
  local file
  if [[ ! -d $1 ]]; then
    mkdir -p "$1"
    git ls-files -z | xargs -0 cp --parents -t "$1"
  fi
  for file in "$1"/src/app/archive/*.before; do
    [[ -f $file ]] && mv "$file" "${file%.before}" && touch "${file%.before}"
  done
  return 0
}

changes=(whole one_class plain_metric rotated_keys)
if [[ ${1:-} == --check && $# == 1 ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for name in "${changes[@]}"; do
    rm -rf "$folder/src"
    cp -r src "$folder/src"
    change "$name" "$folder"
  done
  echo "every change fits the sources"
  exit
fi

if (($# < 1)) || [[ $1 == --* ]]; then
  echo "archive_ablations: takes FOLDER [MODEL FIT.bin TEXT.bin...], or --check" >&2
  exit 2
fi
folder=$(realpath -m "$1")
smollm2=checkpoints/smollm2
model=${2:-$smollm2/model} fit=${3:-$smollm2/tokens/docs.fit.bin}
texts=("${@:4}")
((${#texts[@]} > 0)) || texts=("$smollm2/tokens/docs.heldout.bin")
keys=(--tokens.sequence_length 512 --model.dtype float32)

for name in "${changes[@]}"; do
  [[ -x $folder/$name ]] && continue
  copy_sources "$folder/source"
  change "$name" "$folder/source"
  (cd "$folder/source" && bash jobs/build.sh headspan) >&2
  cp "$folder/source/build/release/headspan" "$folder/$name"
done

# measure NAME PROGRAM [--archive.key value ...]: makes the codec and evaluates it; prints a row for each text.
measure() {
  local codec=$folder/$1.codec bits text domain
  [[ -f $codec.done ]] || "$folder/$2" archive calibrate --model.path "$model" --tokens.path "$fit" --archive.codec "$codec" \
    --tokens.limit 20000 "${keys[@]}" "${@:3}" >&2
  for text in "${texts[@]}"; do
    domain=$(basename "$text" .bin)
    for bits in 2 1; do
      [[ -f $folder/$1.$domain.$bits.json ]] ||
        "$folder/$2" evaluate --model.path "$model" --archive.codec "$codec" --archive.bits "$bits" --tokens.limit 6144 \
          --evaluate.texts "$text" --evaluate.summary "$folder/$1.$domain.$bits.json" "${keys[@]}" >&2
    done
    print_row "$1" "$domain" "$folder/$1.$domain".{2,1}.json
  done
}

# print_row NAME TEXT SUMMARY SUMMARY: KL at exactly two bits and one bit, log KL taken as a line in the bits
print_row() {
  python3 -B - "$@" <<'EOF'
import json, math, sys
name, text, *files = sys.argv[1:]
points = []
for file in files:
    with open(file) as opened:
        summary = json.load(opened)
    points.append((summary["archive"]["bits"], math.log(summary["texts"][text]["kl"])))
(b2, kl2), (b1, kl1) = points
at = [math.exp(kl1 + (kl2 - kl1) * (bits - b1) / (b2 - b1)) for bits in (2, 1)]
print(f"| {name.replace('_', ' ')} | {text} | {at[0]:.2g} | {at[1]:.2g} |")
EOF
}

echo "| codec | text | 2 bits | 1 bit |"
echo "| --- | --- | --- | --- |"
attention=(--archive.effort quick --archive.own_text 12288)
measure whole whole
measure groups_of_1 whole --archive.group 1
measure groups_of_5 whole --archive.group 5
measure one_class one_class
measure attention_metric whole "${attention[@]}"
measure plain_metric plain_metric "${attention[@]}"
measure attention_metric_rotated_keys rotated_keys "${attention[@]}"
