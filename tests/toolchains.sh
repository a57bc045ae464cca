#!/usr/bin/env bash
# Builds headspan in other ways than jobs/build.sh does, and runs tests with each. Prints a table; the exit code is 1 if a build
# or a test failed. Half an hour each, on Debian 12; asan-ubsan takes hours.
#
#   bash tests/toolchains.sh [TOOLCHAIN...]
#
#       no TOOLCHAIN: all of them, with all but the slow tests if nothing else is said:
#       clang:      Clang and its OpenMP; all but one of these tests
#       mpich:      MPICH, with its ScaLAPACK and its HDF5; without the tests of Slurm, whose srun starts Open MPI, those in C++
#                   on 4 and 6 ranks, which take whole cores to wait, and two that its launcher or its settings cannot pass
#       reference:  the reference BLAS and LAPACK
#       blis:       BLIS, with the reference LAPACK
#       wheel:      the PyTorch of jobs/pytorch.sh, and the code for GPUs
#       newest:     the newest PyTorch, and the code for GPUs
#       asan-ubsan: all tests but two under the address, leak and undefined-behaviour sanitizers
#       tsan:       the C++ tests on 1 and 2 ranks, with 3 threads each, under Clang's thread sanitizer; Archer tells it what
#                   Clang's OpenMP orders; without those that signal a process, which TSan delays
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(clang mpich reference blis wheel newest asan-ubsan tsan)
toolchains=("$@")
((${#toolchains[@]} > 0)) || toolchains=("${all[@]}")
for toolchain in "${toolchains[@]}"; do
  [[ " ${all[*]} " == *" $toolchain "* ]] || { echo "tests/toolchains.sh: unknown toolchain '$toolchain'; known: ${all[*]}" >&2; exit 2; }
done
bash jobs/packages.sh build test fetch clang toolchains
libraries=/usr/lib/$(gcc -dumpmachine)
# Expects that products of integers are the fastest, which Clang builds as plain loops, and sanitizers slow down.
fastest=test_automatic_precision
# Runs the program in a folder that holds nothing else, and so no suppressions of Open MPI's leaks.
alone=test_bundle
# Of MPICH: its mpiexec ends with 0 now and then after it has passed a signal on; windows are not switched off by its settings.
not_mpich='test_stop|test_shared_counter\.without_windows'

# options TOOLCHAIN: sets `configure`, what CMake is told, and `chosen`, what ctest is told.
options() {
  configure=(--preset release -B "build/$1" -DPython3_EXECUTABLE=/usr/bin/python3 -DHEADSPAN_CUDA=off) chosen=(--label-exclude '^slow$')
  case $1 in
    clang)
      configure[1]=clang
      chosen+=(--exclude-regex "^$fastest\$")
      ;;
    mpich)
      configure+=(-DMPI_C_COMPILER=mpicc.mpich -DMPI_CXX_COMPILER=mpicxx.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich
        -DHDF5_C_COMPILER_EXECUTABLE=/usr/bin/h5pcc.mpich)
      chosen=(--label-exclude '^(slow|slurm)$' --exclude-regex "^($not_mpich)\$|\.[46]\$")
      ;;
    reference) configure+=(-DBLAS_LIBRARIES="$libraries/blas/libblas.so" -DLAPACK_LIBRARIES="$libraries/lapack/liblapack.so") ;;
    blis) configure+=(-DBLAS_LIBRARIES="$libraries/blis-openmp/libblas.so" -DLAPACK_LIBRARIES="$libraries/lapack/liblapack.so") ;;
    wheel)
      configure=(--preset cuda -B build/cuda -DPython3_EXECUTABLE=/usr/bin/python3 -DHEADSPAN_TORCH_DIR="$(bash jobs/pytorch.sh)")
      ;;
    newest)
      configure=(--preset cuda -B build/newest -DPython3_EXECUTABLE=/usr/bin/python3 -DHEADSPAN_TORCH_DIR="$(bash jobs/pytorch.sh newest)")
      ;;
    asan-ubsan)
      configure[1]=asan-ubsan chosen=(--label-exclude '^quick$' --exclude-regex "^($fastest|$alone)\$")
      export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:verify_asan_link_order=0 UBSAN_OPTIONS=print_stacktrace=1
      export LSAN_OPTIONS=suppressions=$PWD/tests/faults/lsan.supp:print_suppressions=0
      ;;
    tsan)
      configure[1]=tsan chosen=(--tests-regex '\.[12]$' --exclude-regex '^test_(bad_|flagged|output|contents|locks|lock_file|interrupts)')
      archer=$(find /usr/lib/llvm-*/lib -name libarcher.so | sort -V | tail -n 1)
      export TSAN_OPTIONS=ignore_noninstrumented_modules=1:die_after_fork=0 OMP_TOOL_LIBRARIES=$archer
      ;;
  esac
}

# count TOOLCHAIN: prints what ctest has printed, as the cells of a table.
count() {
  awk -v name="$1" '
    / tests failed out of / { failed = $4; total = $9 }
    /\(Skipped\)$/ { skipped++ }
    /^[ \t]*[0-9]+ - .*\((Failed|Timeout|SEGFAULT|Subprocess aborted)\)$/ { names = names " " $3 }
    END { printf "| %s | %d | %d | %s |\n", name, total - failed - skipped, failed, names }' "build/$1.log"
}

status=0
echo "| toolchain | passed | failed | these |"
echo "| --- | --- | --- | --- |"
for toolchain in "${toolchains[@]}"; do
  options "$toolchain"
  folder=build/$toolchain
  [[ $toolchain != wheel ]] || folder=build/cuda
  if ! { cmake "${configure[@]}" && cmake --build "$folder" --parallel "$(nproc)"; } > "build/$toolchain.log" 2>&1; then
    status=1
    echo "| $toolchain | | | the build: build/$toolchain.log |"
    continue
  fi
  if [[ $toolchain == *san || $toolchain == mpich ]]; then  # programs are slow; ranks of MPICH take whole cores to wait
    find "$folder" -name CTestTestfile.cmake -exec sed -i -E 's/ TIMEOUT "([0-9]+)"/ TIMEOUT "\10"/' {} +
  fi
  ctest --test-dir "$folder" --parallel "$(nproc)" --output-on-failure --no-tests=error "${chosen[@]}" > "build/$toolchain.log" 2>&1 ||
    status=1
  count "$toolchain"
done
exit "$status"
