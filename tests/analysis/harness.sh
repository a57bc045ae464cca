#!/usr/bin/env bash
# Runs test_harness_metrics.py, test_capture_models.py, test_cache_models.py, test_archive_models.py, test_export.py
# and test_convert.py, which need lm_eval, torch, transformers and accelerate. Takes six minutes.
#
#   bash tests/analysis/harness.sh [PYTHON [PROGRAM]]
#
# PYTHON is an interpreter with these packages; without it they are installed in build/harness with pip (some GB; set
# PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to a place with smaller wheels of torch without CUDA). PROGRAM is a headspan that is
# already built (default: builds build/release/headspan).
set -euo pipefail
python=${1:-} program=${2:-}
if (($# > 2)); then
  echo "tests/analysis/harness.sh: takes PYTHON and PROGRAM at most; got $*" >&2
  exit 2
fi
[[ -n $program ]] && program=$(realpath "$program")
[[ $python == */* ]] && python=$(realpath --no-symlinks "$python")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z $program ]]; then
  bash jobs/build.sh headspan >&2
  program=$PWD/build/release/headspan
fi
if [[ -z $python ]]; then
  environment=$PWD/build/harness python=$PWD/build/harness/bin/python
  if [[ ! -e $environment/installed ]]; then  # written last
    bash jobs/packages.sh fetch >&2
    rm -rf "$environment"
    mkdir -p build
    python3 -m venv "$environment"
    "$python" -m pip install --quiet --disable-pip-version-check './analysis[harness,capture,cache]' torch accelerate optimum-quanto >&2
    touch "$environment/installed"
  fi
fi

# Open MPI: root may run it, and two ranks run on any number of cores, as in tests/CMakeLists.txt.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
status=0
for test in harness_metrics capture_models cache_models archive_models export; do
  "$python" -B "tests/analysis/test_$test.py" "$program" mpirun || status=1  # 77: a package is missing, as it says
done
"$python" -B tests/checkpoints/test_convert.py || status=1
exit "$status"
