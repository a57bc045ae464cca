#!/usr/bin/env bash
# What can only be seen on a GPU: that a study computes there what it computes on the CPU, and how fast it is. Prints one
# table (Markdown) on standard output; exit code 0 when all that is required is met. A few minutes on one GPU.
#
#   bash tests/gpu.sh [BUNDLE]
#
# BUNDLE is a folder that slurm/bundle.sh made of build/cuda, or that folder as .tar.xz, for machines without MPI and
# compilers; PyTorch's wheel must be there (its folder in HEADSPAN_TORCH_DIR, or importable by python3). Without BUNDLE it
# builds build/cuda (jobs/build.sh --cuda) and uses that. It does not measure several GPUs, compressed caches or
# transformers yet.
set -euo pipefail
bundle=${1:-}
if (($# > 1)); then
  echo "tests/gpu.sh: takes BUNDLE at most; got $*" >&2
  exit 2
fi
[[ -n $bundle ]] && bundle=$(realpath "$bundle")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$work/gpu" 2> /dev/null; then
  echo "tests/gpu.sh: nvidia-smi finds no GPU; start it on a machine that has one" >&2
  exit 1
fi
if [[ -z $bundle ]]; then
  bash jobs/build.sh --cuda headspan headspan-bench >&2
  bundle=$PWD/build/cuda
elif [[ -f $bundle ]]; then
  mkdir "$work/bundle"
  tar -xJf "$bundle" -C "$work/bundle" --strip-components=1
  bundle=$work/bundle
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

missed=0
# bench NAME OPTION...: keeps its lines for programs.
bench() {
  echo "== headspan-bench $*" >&2
  local status=0
  "$bundle/headspan-bench" "$@" > "$work/output" || status=$?
  grep -v ^bench= "$work/output" >&2 || true
  sed -nE 's/^bench=[^ ]+ figure="([^"]*)" unit=([^ ]*) value=([^ ]*) limit=([^ ]*) ratio=([^ ]*) required=([^ ]*) met=([^ ]*).*/| \1 | \3 \2 | \4 | \5 | \6 | \7 |/p' \
    "$work/output" >> "$work/table"
  ((status == 0)) || missed=1
}

# study NAME OPTION...: 30 000 drawn tokens through three layers of a 7B model with random weights; its log's seconds.
study() {
  local name=$1
  shift
  echo "== headspan study, $name" >&2
  "$bundle/headspan" study --model.path checkpoints/random-4096 --model.init random --tokens.path "$work/tokens.bin" \
    --run.device cuda --overlap.enabled false --output.directory "$work/$name" "$@" > "$work/output" 2> "$work/log" ||
    { cat "$work/log" >&2; missed=1; }
  sed -nE "s/.* headspan seconds unit=[^ ]* (.*)/| $name | \1 |/p" "$work/log" >> "$work/phases"
}

python3 -c 'import random, array
random.seed(1); array.array("H", (random.randrange(1, 49152) for _ in range(30000))).tofile(open(__import__("sys").argv[1], "wb"))' \
  "$work/tokens.bin"
bench device --folder checkpoints/tiny-olmo2/step0 --tokens 4096
bench solves --layers 4 --heads 32 --head-size 128 --repeats 3
bench products --layers 8 --heads 32 --head-size 128 --tokens 8192
study float32 --model.dtype bfloat16 --predict.precision float32
study bfloat16 --model.dtype bfloat16 --predict.precision bfloat16

echo "Device: $(head -1 "$work/gpu")"
echo "Date: $(date -u +%Y-%m-%d)"
echo "Program: $("$bundle/headspan" --version)"
echo
echo "| figure | value | limit | ratio | required | met |"
echo "| --- | --- | --- | --- | --- | --- |"
cat "$work/table"
echo
echo "| study of 3 layers, hidden size 4096, K, Q and V | seconds |"
echo "| --- | --- |"
cat "$work/phases"
exit "$missed"
