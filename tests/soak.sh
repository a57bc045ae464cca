#!/usr/bin/env bash
# Runs for hours what tests/run.sh runs for seconds: ranks that are lost, storage that fails, sweeps under Slurm whose ranks and
# nodes are lost, publishing that is killed, long studies, runs that are repeated, memcheck; and a digest, by which machines can
# be compared. Prints tables; the exit code is 1 if anything was violated. `tests/fuzz.sh` is the same for files.
#
#   bash tests/soak.sh [FAULTS]
#
#       FAULTS: of each kind in each command; the rest grows with it [50]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
faults=${1:-50}
bash jobs/packages.sh soak
bash jobs/build.sh --tests headspan publish_loop failing_new failing_disk >&2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_pml=ob1 OMP_NUM_THREADS=1
program=build/release/headspan preloaded=build/release/tests/app status=0
mpiexec=$(command -v mpiexec)

/usr/bin/python3 -B tests/faults/lost_ranks.py $program "$mpiexec" $preloaded/libfailing_new.so "$faults" || status=1
/usr/bin/python3 -B tests/faults/lost_ranks.py $program srun $preloaded/libfailing_new.so $(((faults + 4) / 5)) study calibrate evaluate ||
  status=1
/usr/bin/python3 -B tests/faults/publish_steps.py $program "$mpiexec" $preloaded/libfailing_disk.so || status=1
/usr/bin/python3 -B tests/faults/storage.py $program "$mpiexec" $preloaded/libfailing_disk.so $((2 * faults)) || status=1
/usr/bin/python3 -B tests/faults/sweep.py $program "$mpiexec" $((10 * faults)) $((5 * faults / 3)) || status=1
/usr/bin/python3 -B tests/faults/long_run.py $program "$mpiexec" $((10 * faults)) 1 2 || status=1
bash tests/memcheck.sh || status=1
/usr/bin/python3 -B tests/faults/digest.py $program "$mpiexec" Haswell Skylake-Client EPYC || status=1

# check FAULT NAME INSTANTS COMMAND...: adds a row of a test that fails at its first violation.
check() {
  local violations=0
  "${@:4}" >&2 || violations=1 status=1
  echo "| $1 | $2 | $3 | $violations | |"
}
check "SIGKILL of one rank or both" "publishing" "$((4 * faults))" \
  /usr/bin/python3 -B tests/io/kill_publish.py build/release/publish_loop mpiexec "$((4 * faults))"
check "SIGINT, SIGTERM, SIGUSR1" "study on 4 ranks" "$faults" \
  /usr/bin/python3 -B tests/app/test_interrupts.py $program mpiexec "$faults" 4
HEADSPAN_REPEATS=10 check "none: ten times the same" "study, calibrate, archive on 1, 2 and 4 ranks" 10 \
  /usr/bin/python3 -B tests/app/test_determinism.py $program mpiexec
exit "$status"
