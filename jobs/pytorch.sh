#!/usr/bin/env bash
# Installs PyTorch's wheel for CUDA, with the packages that hold CUDA's runtime and NCCL, in build/pytorch unless it is
# there, and prints the wheel's folder, for HEADSPAN_TORCH_DIR. Downloads 3 GB with pip, takes 5 GB on disk.
#
#   torch=$(bash jobs/pytorch.sh)            # the version that headspan is measured with
#   torch=$(bash jobs/pytorch.sh newest)     # the newest when it is first fetched, in build/pytorch-newest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in
  "") torch=torch==2.11.0 folder=$PWD/build/pytorch ;;
  newest) torch=torch folder=$PWD/build/pytorch-newest ;;
  *) echo "jobs/pytorch.sh: takes nothing or 'newest'; got $*" >&2; exit 2 ;;
esac
# (crt and cccl: headers that those of CUDA include, and on which PyTorch does not depend)
requirements=("$torch" "cuda-toolkit[crt,cccl]")

mkdir -p build
exec 9> "$folder.lock"
flock 9  # of several processes one installs, the others wait
if [[ $(cat "$folder/requirements" 2> /dev/null) != "${requirements[*]}" ]]; then
  python=$(bash checkpoints/environment.sh)
  echo "pytorch: installing ${requirements[*]} in build/${folder##*/}" >&2
  rm -rf "$folder"
  "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --target "$folder" "${requirements[@]}" >&2
  echo "${requirements[*]}" > "$folder/requirements"  # written last
fi
echo "$folder/torch"
