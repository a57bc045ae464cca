#!/usr/bin/env bash
# Checks what can only be seen on a GPU: that a study and a cache compute there what they compute on the CPU, and how fast
# they are. Prints tables (Markdown) on standard output; the exit code is 0 if every requirement is met. Meant to take less
# than 9 minutes on one H200.
#
#   bash tests/gpu.sh [BUNDLE [PART...]]
#
# BUNDLE is a folder that slurm/bundle.sh made of build/cuda, or that folder as .tar.xz, for machines without MPI and
# compilers; PyTorch's wheel must be on the machine (HEADSPAN_TORCH_DIR names its folder, or python3 can import it). Without
# BUNDLE the script builds build/cuda (jobs/build.sh --cuda) and uses that, and if there are several GPUs and mpiexec it also
# runs the tests of NCCL. transformers is measured too if python3 has it. PART: some of checks, products, forward, caches,
# float32, split, bfloat16 (these three are studies) and nccl, if time is short; BUNDLE may then be ''.
#
# The models have random weights and the shapes of OLMo-2-7B (32 layers of 32 heads x 128, hidden size 4096) for studies,
# and of Llama-3.1-8B (32 layers, 32 query heads and 8 KV heads x 128) for caches. K, Q and V of OLMo-2-7B are studied one by
# one: each Gram takes 69 GB, and in a study of all three, two of them would have to be in host memory.
set -euo pipefail
bundle=${1:-}
all=(checks products forward caches float32 split bfloat16 nccl)
parts=("${@:2}")
((${#parts[@]} > 0)) || parts=("${all[@]}")
for part in "${parts[@]}"; do
  if [[ " ${all[*]} " != *" $part "* ]]; then
    echo "tests/gpu.sh: unknown part '$part'; there are ${all[*]}" >&2
    exit 2
  fi
done
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
[[ -n $bundle ]] && bundle=$(realpath "$bundle")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$work/gpu" 2> /dev/null; then
  echo "tests/gpu.sh: nvidia-smi finds no GPU; start it on a machine that has one" >&2
  exit 1
fi
built=
if [[ -z $bundle ]]; then
  bash jobs/build.sh --cuda >&2
  bundle=$PWD/build/cuda built=yes
elif [[ -f $bundle ]]; then
  mkdir "$work/bundle"
  tar -xJf "$bundle" -C "$work/bundle" --strip-components=1
  bundle=$work/bundle
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

missed=0
row='s/^bench=[^ ]+ figure="([^"]*)" unit=([^ ]*) value=([^ ]*) limit=([^ ]*) ratio=([^ ]*) required=([^ ]*) met=([^ ]*).*/| \1 | \3 \2 | \4 | \5 | \6 | \7 |/p'
# bench NAME OPTION...: runs the benchmark and adds its machine-readable lines to the table.
bench() {
  echo "== headspan-bench $*" >&2
  local status=0
  "$bundle/headspan-bench" "$@" > "$work/output" || status=$?
  grep -v ^bench= "$work/output" >&2 || true
  sed -nE "$row" "$work/output" >> "$work/table"
  ((status == 0)) && return
  missed=1
  grep -q ^bench= "$work/output" || echo "| headspan-bench $1 | failed | | | | no |" >> "$work/table"
}

# figure NAME: prints the tokens/s of the forward pass to logits that the last program measured.
figure() {
  sed -nE "s/^bench=$1 figure=\"forward to logits[^\"]*\" unit=[^ ]* value=([^ ]*).*/\1/p" "$work/output"
}

# require FIGURE VALUE UNIT LIMIT: adds a row, which is met if the value is at most the limit.
require() {
  awk -v figure="$1" -v value="$2" -v unit="$3" -v limit="$4" 'BEGIN {
    met = value + 0 <= limit + 0
    printf "| %s | %.4g %s | %s | %.3f | 1 | %s |\n", figure, value, unit, limit, limit / value, met ? "yes" : "no"
    exit !met }' >> "$work/table" || missed=1
}

# config NAME TYPE LAYERS HEADS KV_HEADS HEAD_SIZE MLP VOCABULARY: makes a folder that holds only a config.json.
config() {
  mkdir "$work/$1"
  cat > "$work/$1/config.json" << END
{"model_type": "$2", "hidden_size": $(($4 * $6)), "intermediate_size": $7, "num_hidden_layers": $3,
 "num_attention_heads": $4, "num_key_value_heads": $5, "head_dim": $6, "vocab_size": $8, "max_position_embeddings": 8192,
 "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "initializer_range": 0.02, "attention_bias": false, "hidden_act": "silu",
 "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 0, "torch_dtype": "bfloat16"}
END
}
config olmo2-7b olmo2 32 32 32 128 11008 100352
config llama31-8b llama 32 32 8 128 14336 128256
# `checked` is small enough for a forward pass in float64 on the CPU, and runs on many different tokens: with fewer, R2 of
# two forward passes in bfloat16 that sum the same products in different orders differs by more than the 1e-3 allowed.
config checked olmo2 4 8 8 64 1024 50257
python3 -c 'import random, array
random.seed(1); array.array("H", (random.randrange(1, 49152) for _ in range(30000))).tofile(open(__import__("sys").argv[1], "wb"))' \
  "$work/tokens.bin"

# study PRECISION LIMIT: studies K, Q and V of 30 000 tokens, all pairs and top-5; the limit is on the seconds of all phases
# after loading.
study() {
  local precision=$1 limit=$2 stream
  for stream in k q v; do
    echo "== headspan study, $precision products, $stream" >&2
    "$bundle/headspan" study --model.path "$work/olmo2-7b" --model.init random --model.dtype bfloat16 \
      --tokens.path "$work/tokens.bin" --tokens.heldout 0 --predict.streams "$stream" --predict.precision "$precision" \
      --predict.selection pairwise --ceiling.enabled false --overlap.enabled false --run.device cuda --run.save_minutes 0 \
      --output.directory "$work/$precision-$stream" > "$work/output" 2> "$work/log" || {
      cat "$work/log" >&2
      echo "| study, $precision products, $stream | failed | | | | no |" >> "$work/table"
      missed=1
      return 0
    }
    sed -nE "s/.* headspan seconds unit=[^ ]* (.*)/$precision $stream \1/p" "$work/log" >> "$work/phases"
    rm -rf "${work:?}/$precision-$stream"
  done
  require "study of K, Q and V, all pairs, top-5, $precision products, behind loading" \
    "$(awk -v p="$precision" '$1 == p { for (i = 3; i <= NF; ++i) { split($i, x, "="); if (x[1] != "load") s += x[2] } } END { print s }' "$work/phases")" \
    s "$limit"
}

touch "$work/table" "$work/phases"
if wanted checks; then
  bench device --device cuda --folder "$work/checked" --tokens 16384
  bench solves --device cuda --layers 4 --heads 32 --head-size 128 --repeats 3
fi
if wanted products; then
  bench products --device cuda --layers 8 --heads 32 --head-size 128 --tokens 8192
fi
if wanted forward; then
  bench forward --device cuda --folder "$work/olmo2-7b" --tokens 16384 --sequence-length 2048
  ours=$(figure forward)
  peer=
  if python3 -c 'import transformers' 2> /dev/null; then
    python3 tests/bench/peers.py transformers --device cuda --folder "$work/olmo2-7b" --tokens 16384 \
      --sequence-length 2048 > "$work/output" && peer=$(figure transformers)
  fi
  if [[ -n $ours && -n $peer ]]; then
    require "seconds of a token, forward to logits, against transformers" \
      "$(awk -v x="$ours" 'BEGIN { print 1 / x }')" s "$(awk -v x="$peer" 'BEGIN { print 1 / x }')"
  else
    echo "| forward, against transformers | not measured: python3 has none that runs | | | | |" >> "$work/table"
  fi
fi
if wanted caches; then
  for plan in latent headspan; do
    bench cache --device cuda --folder "$work/llama31-8b" --plan "$plan" --batch 64 --sequence-length 4096
  done
fi
if wanted float32; then study float32 60; fi
if wanted split; then study split 20; fi
if wanted bfloat16; then study bfloat16 10; fi

gpus=$(wc -l < "$work/gpu")
if ! wanted nccl; then
  :
elif [[ -n $built ]] && ((gpus > 1)) && command -v mpiexec > /dev/null; then
  echo "== tests of NCCL on $gpus GPUs" >&2
  for ranks in 2 4 6; do
    ((ranks <= gpus)) || continue
    ctest --test-dir build/cuda --output-on-failure -R "(device_comm|tensor_comm|device_gram|device_capture|resident_grams)\.$ranks\$" >&2 ||
      missed=1
  done
else
  echo "| NCCL between GPUs | not tested: $gpus GPU$([[ -n $built ]] || echo ', a bundle') | | | | |" >> "$work/table"
fi

echo "Device: $(head -1 "$work/gpu") ($gpus)"
echo "Date: $(date -u +%Y-%m-%d)"
echo "Program: $("$bundle/headspan" --version)"
echo
echo "| figure | value | limit | ratio | required | met |"
echo "| --- | --- | --- | --- | --- | --- |"
cat "$work/table"
echo
echo "| study, OLMo-2-7B shapes, 30 000 tokens | seconds |"
echo "| --- | --- |"
sed -E 's/^([^ ]+) ([^ ]+) (.*)/| \1, \2 | \3 |/' "$work/phases"
exit "$missed"
