#!/usr/bin/env bash
# Installs what is missing, builds headspan, studies the nine checkpoints of checkpoints/tiny-olmo2 (a real training run of
# a small OLMo-2 model), prints one row for each, and makes a page of figures.
#
#   bash jobs/quickstart.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# > 0)); then
  echo "quickstart: takes no arguments, got: $*" >&2
  exit 2
fi

bash jobs/build.sh headspan
bash jobs/packages.sh report

# Open MPI: root may run it; there may be more ranks than cores; ranks are not bound to cores.
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
ranks=$(nproc)
((ranks > 2)) && ranks=2
study=(build/release/headspan study jobs/quickstart.ini)
if ((ranks > 1)) && command -v mpirun > /dev/null; then
  study=(mpirun -n "$ranks" "${study[@]}")
fi
echo "quickstart: ${study[*]}" >&2
"${study[@]}"

mapfile -t results < <(find results/quickstart -name '*.h5' ! -name '*.gram.h5' | sort -V)
if ((${#results[@]} == 0)); then
  echo "quickstart: the study left no result under results/quickstart" >&2
  exit 1
fi
echo
build/release/headspan inspect "${results[@]}"

echo "quickstart: making a page of figures and maps" >&2
python=python3
[[ -x /usr/bin/python3 ]] && python=/usr/bin/python3  # the distribution's, which has the packages
PYTHONPATH=analysis "$python" -B -m headspan_report report results/quickstart --output results/quickstart/report.html
cat << 'END'

Results: results/quickstart, one file for each checkpoint (HDF5, opens in h5py, xarray and ncdump), and report.html.
Next:
  build/release/headspan inspect FILE          what one result file holds
  build/release/headspan study --help          the keys of a job file; copy jobs/quickstart.ini for yours
  bash tests/run.sh                            the tests
END
