#!/usr/bin/env bash
# Calibrates and evaluates every way to compress a KV cache on one model, archives too, and leaves a plan (or a codec) and a
# summary of each in a folder. Skips what is there already. `headspan-report compression OUT` makes a page of the summaries.
#
#   bash jobs/compression.sh MODEL FIT.bin OUT TEXT.bin... [-- --section.key value ...]
#
# MODEL  checkpoint folder          FIT.bin   tokens to calibrate on; with A.bin,B.bin,.. each plan is made on each of them
# OUT    folder for the results     TEXT.bin  tokens to evaluate on, of any domains
#
# Keys after -- go to every command. Variables of the environment, with their defaults:
#   METHODS [*]            patterns of the names of the plans to make
#   FIT_TOKENS [20000], TEXT_TOKENS [10000]    tokens to run; a --tokens.limit after -- replaces both
#   SCOPE [causal]         compress.scope of headspan
#   EFFORT [auto]          compress.effort of latent and headspan, archive.effort of archives
#   HEADSPAN [build/release/headspan]    the program
# Takes two hours on two cores with the model of checkpoints/smollm2 and one FIT.bin.
# Plans calibrated on each domain and evaluated on all of them, as in the paper's tables by domain:
#
#   T=checkpoints/smollm2/tokens
#   METHODS='quantise-4 latent-0.27 paper-code-kv-0.5' bash jobs/compression.sh MODEL \
#     $T/docs.fit.bin,$T/code.fit.bin,$T/prose.fit.bin OUT $T/{docs,code,prose}.heldout.bin
set -euo pipefail
if (($# < 4)); then
  sed -n '2,25s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
model=$1 out=$3
IFS=, read -ra fits <<<"$2"
read -ra methods <<<"${METHODS:-*}"
shift 3
texts=()
while (($# > 0)) && [[ $1 != -- ]]; do
  texts+=("$1")
  shift
done
keys=("${@:2}")
fit_limit=(--tokens.limit "${FIT_TOKENS:-20000}") text_limit=(--tokens.limit "${TEXT_TOKENS:-10000}")
for key in "${keys[@]}"; do
  if [[ ${key%%=*} == --tokens.limit ]]; then fit_limit=() text_limit=(); fi
done
program=${HEADSPAN:-build/release/headspan}
units=(--compress.effort "${EFFORT:-auto}")
evaluated=$(IFS=,; echo "${texts[*]}")

# check NAME FIT.bin [--compress.key value ...]: refuses keys after -- that this script gives itself to this plan.
check() {
  local name=$1 key given
  for key in "${keys[@]}"; do
    for given in --model.path --tokens.path --compress.plan --evaluate.{plan,texts,summary} "${@:3}"; do
      [[ $key == --* && ${key%%=*} == "$given" ]] || continue
      echo "compression: command line: $given: is given by this script for $name; leave it out, or set METHODS, EFFORT" \
        "or SCOPE" >&2
      exit 2
    done
  done
}

# evaluate NAME [--key value ...]: writes the summary of NAME.
evaluate() {
  "$program" evaluate --model.path "$model" --evaluate.texts "$evaluated" "${text_limit[@]}" \
    --evaluate.summary "$out/$1.json" "${keys[@]}" "${@:2}"
}

refused=()
# tolerated NAME COMMAND...: runs a command; if it refuses its input, keeps NAME in mind and fails.
tolerated() {
  local status=0
  "${@:2}" || status=$?
  ((status == 0)) && return
  ((status == 2)) || exit "$status"
  refused+=("$1")
  return 1
}

# run NAME FIT.bin [--compress.key value ...]: makes and evaluates the plan. One that is refused, such as a budget out of
# reach, does not stop the others.
run() {
  local name=$1 fit=$2
  shift 2
  [[ -f $out/$name.json ]] && return
  echo "== $name" >&2
  if [[ ! -f $out/$name.h5 ]]; then
    tolerated "$name" "$program" calibrate --model.path "$model" --tokens.path "$fit" --compress.plan "$out/$name.h5" \
      "${fit_limit[@]}" "${keys[@]}" "$@" || return 0
  fi
  evaluate "$name" --evaluate.plan "$out/$name.h5"
}

# check_archive NAME FIT.bin ALGORITHM BITS: as check
check_archive() { check "$1" "$2" --archive.{codec,algorithm,bits,effort}; }

# run_archive NAME FIT.bin ALGORITHM BITS: evaluates archives of so many bits a number. The codec is made once.
run_archive() {
  local name=$1 fit=$2 codec=$out/${1/-"$4"/}.codec
  [[ -f $out/$name.json ]] && return
  echo "== $name" >&2
  if [[ ! -f $codec ]]; then
    tolerated "$name" "$program" archive calibrate --model.path "$model" --tokens.path "$fit" --archive.codec "$codec" \
      --archive.algorithm "$3" --archive.effort "${EFFORT:-auto}" "${fit_limit[@]}" "${keys[@]}" || return 0
  fi
  evaluate "$name" --archive.codec "$codec" --archive.bits "$4"
}

wanted() {
  local pattern
  for pattern in "${methods[@]}"; do
    # shellcheck disable=SC2053
    [[ $1 == $pattern ]] && return
  done
  return 1
}

# Returns whether a method rounds columns without having seen any text.
uncalibrated() { [[ $1 == quantise-* || $1 == hadamard-* || $1 == rotated-* || $1 == kivi-* ]]; }

# try NAME [--compress.key value ...]: runs $step with each FIT.bin. If there are several, the domain is added to the name.
try() { try_by "$step" "$@"; }

# try_by FUNCTION NAME ARGUMENT...
try_by() {
  local step=$1 name=$2 fit domain
  shift 2
  wanted "$name" || return 0
  for fit in "${fits[@]}"; do
    domain=
    if ((${#fits[@]} > 1)) && ! uncalibrated "$name"; then
      domain=$(basename "$fit" .bin)
      domain=-${domain%.fit}
    fi
    "$step" "$name$domain" "$fit" "$@"
  done
}

# heads STREAMS STORED: the methods that keep 16-bit numbers, whole heads or whole columns
heads() {
  local name=${1/,/}-$2 budget=(--compress.streams "$1" --compress.stored "$2")
  try "paper-code-$name" "${budget[@]}" --compress.algorithm paper-code
  try "headspan-$name" "${budget[@]}" --compress.algorithm headspan --compress.scope "${SCOPE:-causal}" "${units[@]}"
  try "latent-whole-$name" "${budget[@]}" --compress.bits 16 "${units[@]}"
}

plans() {
  local bits stored stream
  for bits in 8 4 3; do
    try "quantise-$bits" --compress.algorithm quantise --compress.bits "$bits"
  done
  for bits in 5 4 3 2; do
    try "hadamard-$bits" --compress.algorithm hadamard --compress.bits "$bits"
  done
  for bits in 4 2; do
    try "kivi-$bits" --compress.algorithm kivi --compress.bits "$bits"
  done
  for bits in 4 3 2; do
    try "oscar-$bits" --compress.algorithm oscar --compress.bits "$bits"
  done
  try rotated-q8 --compress.algorithm rotated-q8
  try rotated-q4 --compress.algorithm rotated-q4
  for stored in 0.5 0.27 0.2 0.16 0.125; do
    try "latent-$stored" --compress.stored "$stored" "${units[@]}"
    heads k,v "$stored"
    try "paper-text-kv-$stored" --compress.stored "$stored" --compress.algorithm paper-text
  done
  try latent-0.3125 --compress.stored 0.3125 "${units[@]}"  # as many bytes as kivi-4
  for stream in k v; do
    try "latent-$stream-0.5" --compress.streams "$stream" --compress.stored 0.5 "${units[@]}"
    heads "$stream" 0.5
  done
  for bits in 4 3 2 1.5 1 0.5; do
    try_by "${step}_archive" "archive-$bits" headspan "$bits"
    try_by "${step}_archive" "kvtc-$bits" kvtc "$bits"
  done
}

step=check
plans
mkdir -p "$out"
step=run
plans
if ((${#refused[@]} > 0)); then
  echo "compression: refused: ${refused[*]}" >&2
  exit 2
fi
