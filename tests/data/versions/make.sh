#!/usr/bin/env bash
# Makes the files of one version of headspan that tests/app/test_versions.py reads with the current one: what that version wrote
# from tokens.bin and the golden model olmo2_gqa, and what it said of its plan.
#
#   bash tests/data/versions/make.sh HEADSPAN VERSION
set -euo pipefail
program=$(realpath "$1") version=$2
cd "$(dirname "${BASH_SOURCE[0]}")"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r ../golden/olmo2_gqa "$work/olmo2_gqa"
/usr/bin/python3 -B -c 'import numpy; numpy.random.default_rng(1).integers(3, 60, 400).astype("<u2").tofile("'"$work"'/tokens.bin")'
cd "$work"

run() { "$program" "$@" > log 2>&1 || [[ $? == "${code:-0}" ]] || { cat log >&2; exit 1; }; }
tokens=(--model.path olmo2_gqa --tokens.path tokens.bin --tokens.sequence_length 40 --model.dtype float32)
study=(study "${tokens[@]}" --output.directory results)
run "${study[@]}" --output.save_gram true
mkdir "$version"
mv results/*/olmo2_gqa.h5 "$version/result.h5"
mv results/*/olmo2_gqa.gram.h5 "$version/gram.h5"
rm -r results
code=3 run "${study[@]}" --predict.streams k --run.time_limit 0.0000001
mv results/*/olmo2_gqa.h5.state "$version/state.h5"
mv results/*/olmo2_gqa.h5.state.done "$version/state.done"
run calibrate "${tokens[@]}" --compress.plan "$version/plan.h5"
run evaluate --model.path olmo2_gqa --model.dtype float32 --tokens.sequence_length 40 --evaluate.plan "$version/plan.h5" \
  --evaluate.texts tokens.bin --evaluate.summary "$version/summary.json"
if "$program" --help | grep -q 'archive calibrate'; then
  run archive calibrate "${tokens[@]}" --archive.codec "$version/codec.h5"
  /usr/bin/python3 -B - "$OLDPWD/../.." << 'EOF'
import sys
import numpy as np
sys.path.insert(0, sys.argv[1] + "/reference")
from forward import write_safetensors
random = np.random.default_rng(2)
write_safetensors("kv.safetensors", {stream: random.normal(size=(2, 2, 150, 8)).astype("<f2") for stream in "kv"})
EOF
  run archive encode --archive.codec "$version/codec.h5" --archive.input kv.safetensors --archive.output "$version/kv.hsa"
  run archive decode --archive.codec "$version/codec.h5" --archive.input "$version/kv.hsa" --archive.output "$version/decoded.safetensors"
fi
rm -f "$version"/*.h5.done "$version"/kv.hsa.done "$version"/*.safetensors.done
cp tokens.bin "$version/"
tar --sort=name --owner=0 --group=0 --mtime=2026-01-01 -c "$version" | xz -9e > "$OLDPWD/$version.tar.xz"
