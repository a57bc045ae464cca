#!/usr/bin/env bash
# Makes one sound HDF5 file of each kind that headspan reads, as small as they come, for tests/fuzz.
#
#   bash tests/fuzz/make_bases.sh HEADSPAN FOLDER
set -euo pipefail
program=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
model=$PWD/tests/data/golden/olmo2_gqa

/usr/bin/python3 -B - "$folder" << 'EOF'
import sys
import h5py, numpy as np
folder, random = sys.argv[1], np.random.default_rng(1)
random.integers(3, 60, 1200).astype("<u2").tofile(f"{folder}/tokens.bin")
with h5py.File(f"{folder}/activations.h5", "w") as file:
    file["activations"] = random.normal(size=(40, 3, 4)).astype("f4")
    file["layer"], file["head"] = [0, 0, 1], [0, 1, 0]
    file["sequence"] = np.repeat([0, 1], [12, 28])
    file.attrs["stream"] = "k"
EOF

tokens=(--model.path "$model" --tokens.path "$folder/tokens.bin" --tokens.sequence_length 40 --model.dtype float32)
results=$folder/results/olmo2_gqa

# run CODE COMMAND...: runs headspan, which must end with this exit code; what it says is shown only if it does not.
run() {
  local status=0
  "$program" "${@:2}" > "$folder/log" 2>&1 || status=$?
  ((status == $1)) && return
  cat "$folder/log" >&2
  return 1
}

study() { run "$1" study "${tokens[@]}" --output.directory "$folder/results" "${@:2}"; }

mkdir -p "$folder"/{activations,gram,plan,codec,result,state}
study 0 --output.save_gram true
mv "$results/olmo2_gqa.gram.h5" "$folder/gram/own.h5"
mv "$results/olmo2_gqa.h5" "$folder/result/own.h5"
study 0 --predict.streams k,q,v,z --predict.similarity cka,cca,procrustes --cross.streams q:k --attention.scores true \
  --predict.mode paper
mv "$results/olmo2_gqa.h5" "$folder/result/all.h5"
study 3 --run.time_limit 0.0000001 --tokens.limit 200
mv "$results/olmo2_gqa.h5.state" "$folder/state/own.h5"
for algorithm in latent hadamard kivi oscar; do
  run 0 calibrate "${tokens[@]}" --compress.plan "$folder/plan/$algorithm.h5" --compress.algorithm "$algorithm"
done
run 0 calibrate "${tokens[@]}" --compress.plan "$folder/plan/headspan.h5" --compress.algorithm headspan --compress.stored 0.5
for algorithm in headspan kvtc; do
  run 0 archive calibrate "${tokens[@]}" --archive.codec "$folder/codec/$algorithm.h5" --archive.algorithm "$algorithm"
done
mv "$folder/activations.h5" "$folder/activations/own.h5"
rm -rf "$folder/results" "$folder/log" "$folder"/*/*.done
