#!/usr/bin/env bash
# Compares whole studies of K, Q and V with what a user would run instead: the forward pass of transformers, and the Gram,
# all pairs and top-5 of what it captures in numpy (peers.py study). Prints tables (Markdown) on standard output: medians of
# ROUNDS rounds in which all take turns, where the time goes, and how far R2 is from that of the study in float64.
# 30 000 tokens in sequences of 500, none held out; a study also does forward selection and computes ceilings, spectra and
# the overlap of the weights. On two cores a round takes ten minutes.
#
#   bash tests/bench/whole_study.sh PYTHON [PROGRAM [ROUNDS [MODEL...]]]
#
# PYTHON has numpy, scipy, torch, transformers and h5py. PROGRAM: headspan (default: build/release/headspan). ROUNDS:
# default 3. MODEL: random, a llama with random weights (16 layers of 16 heads x 64), or smollm2, the model of
# checkpoints/smollm2 (default: both, if that has been fetched). The forward pass is in float32 for products in float64 and
# those of predict.precision = auto, and in bfloat16 for the others.
set -euo pipefail
python=${1:?usage: whole_study.sh PYTHON [PROGRAM [ROUNDS [MODEL...]]]} program=${2:-} rounds=${3:-3}
models=("${@:4}")
[[ -n $program ]] && program=$(realpath "$program")
[[ $python == */* ]] && python=$(realpath --no-symlinks "$python")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${program:-$PWD/build/release/headspan}
threads=$(env -u OMP_NUM_THREADS nproc)  # nproc would return OMP_NUM_THREADS
export OMP_NUM_THREADS=$threads OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset OPENBLAS_CORETYPE  # headspan chooses its kernels itself, numpy gets those that are the fastest here
# and do not crash in a Gram as wide as SmolLM2's queries.
read -r core _ handicapped <<< "$(bash tests/bench/best_core.sh "$python" tests/bench/peers.py blas --threads "$threads" \
  --layers 30 --heads 9 --head-size 64)"
kernels=()
[[ $core == - ]] || kernels=("OPENBLAS_CORETYPE=$core")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 30 000 tokens for each model: random ones, and those of a text without its end-of-text tokens
"$python" - "$work" checkpoints/smollm2/tokens/docs.fit.bin << 'END'
import sys
import numpy as np
work, text = sys.argv[1:]
np.random.default_rng(1).integers(3, 8192, 30000).astype("<u2").tofile(f"{work}/random.bin")
ids = np.fromfile(text, "<u2")
ids[ids > 2][:30000].tofile(f"{work}/smollm2.bin")
END
"$python" tests/bench/peers.py make --folder "$work/random" --layers 16 --heads 16 --hidden-size 1024 --mlp-size 4096 >&2
ln -s "$PWD/checkpoints/smollm2/model" "$work/smollm2"
if ((${#models[@]} == 0)); then
  models=(random)
  [[ -d $work/smollm2 ]] && models+=(smollm2)
fi

# ours MODEL NAME OPTION...
ours() {
  local model=$1 name=$2
  shift 2
  echo "== headspan study, $model, $name" >&2
  "$program" study --model.path "$work/$model" --tokens.path "$work/$model.bin" --tokens.sequence_length 500 \
    --tokens.heldout 0 --tokens.limit 30000 --output.directory "$work/$name" --output.overwrite true "$@" \
    > "$work/output" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
  sed -n "s/.* headspan seconds unit=[^ ]*/model=$model run=$name &/p" "$work/log" |
    sed "s/ [0-9TZ:-]* headspan seconds unit=[^ ]*//" >> "$work/lines"
}

for model in "${models[@]}"; do
  for ((round = 0; round < rounds; ++round)); do
    ours "$model" float64 --model.dtype float32
    ours "$model" auto --model.dtype float32 --predict.precision auto
    ours "$model" float32 --model.dtype bfloat16 --predict.precision float32
    ours "$model" bfloat16 --model.dtype bfloat16 --predict.precision bfloat16
    echo "== peers.py study, $model" >&2
    env "${kernels[@]}" "$python" tests/bench/peers.py study --folder "$work/$model" --ids "$work/$model.bin" --sequence-length 500 \
      --threads "$threads" --result "$(ls "$work"/float64/*/"$model".h5)" > "$work/peer"
    sed -n "s/^bench=study figure=/model=$model run=peer figure=/p" "$work/peer" >> "$work/lines"
  done
  "$python" - "$work" "$model" >> "$work/lines" << 'END'
import glob
import sys
import h5py
import numpy as np
work, model = sys.argv[1:]
files = {name: h5py.File(glob.glob(f"{work}/{name}/*/{model}.h5")[0]) for name in ("float64", "auto", "float32", "bfloat16")}
for name in ("auto", "float32", "bfloat16"):
    far = max(np.nanmax(np.abs(files[name][f"{s}/r2"][...] - files["float64"][f"{s}/r2"][...])) for s in "kqv")
    mean = max(np.nanmean(np.abs(files[name][f"{s}/r2"][...] - files["float64"][f"{s}/r2"][...])) for s in "kqv")
    print(f"model={model} run={name} furthest={far:.3g} mean={mean:.3g}")
END
done

lscpu | sed -n 's/^Model name: */Machine: /p'
echo "Threads: $threads"
echo "Date: $(date -u +%Y-%m-%d)"
echo "Program: $("$program" --version)"
echo "Peers: $("$python" tests/bench/peers.py versions); OpenBLAS's kernels: ${core/#-/its own choice}${handicapped:+, handicapped}"
echo "Command: bash tests/bench/whole_study.sh PYTHON"
echo
"$python" tests/bench/whole_study.py "$work/lines"
