#!/usr/bin/env bash
# Makes a folder of headspan and the shared libraries that it needs, to run on a machine that lacks them. The distribution's
# LibTorch is included; PyTorch's wheel is left out, and must be on that machine.
#
#   slurm/bundle.sh OUT [BUILD]
#
# OUT    folder to make    BUILD   folder of the build [build/release]; both relative to the project's root
#
# On the other machine OUT/headspan and OUT/headspan-bench are the programs. They need only a shell and the kernel and, if
# they were built on PyTorch's wheel, that wheel: in the folder HEADSPAN_TORCH_DIR, or where python3 finds its package
# torch. Several ranks also need a launcher on that machine, of the MPI that the program was built with.
set -euo pipefail
if (($# < 1 || $# > 2)); then
  sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$1 build=${2:-build/release}

refuse() {
  echo "bundle: $*" >&2
  exit 2
}

[[ ! -e $out ]] || refuse "$out: is there already; name a new folder"
for program in headspan headspan-bench; do
  [[ -x $build/$program ]] || refuse "$build/$program: is not there; build it first"
done

torch=$(sed -n 's/^HEADSPAN_TORCH_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
wheel=${torch:+$(realpath "$torch/..")/}  # nothing of it is copied

partial=$out.partial
trap 'rm -rf "$partial"' EXIT
rm -rf "$partial"
mkdir -p "$partial/bin" "$partial/lib"
cp "$build/headspan" "$build/headspan-bench" "$partial/bin/"

# Open MPI loads its components while it runs.
plugins=()
if command -v ompi_info > /dev/null; then
  mapfile -t plugins < <(find "$(ompi_info --parsable --path pkglibdir | cut -d: -f3)" -name 'mca_*.so')
  mkdir "$partial/openmpi"
  cp "${plugins[@]}" "$partial/openmpi/"
  cp -r "$(ompi_info --parsable --path pkgdatadir | cut -d: -f3)" "$partial/share-openmpi"
fi

# The libraries that the loader would load for them, and the loader.
ldd "$partial"/bin/* "${plugins[@]}" | sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x.*/\2/p' | sort -u |
  while read -r library; do
    [[ -n $wheel && $(realpath "$library")/ == "$wheel"* ]] || cp -L "$library" "$partial/lib/"
  done
loader=$(ldd "$partial/bin/headspan" | sed -nE 's/^\t(\/[^ ]*\/ld[^ ]+) \(0x.*/\1/p')

for program in headspan headspan-bench; do
  cat > "$partial/$program" <<END
#!/bin/sh
here=\$(cd "\${0%/*}" && pwd) || exit 1
libraries=\$here/lib
END
  if [[ -n $wheel ]]; then
    cat >> "$partial/$program" <<'END'
torch=${HEADSPAN_TORCH_DIR-}
if [ -z "$torch" ]; then
  torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])' 2> /dev/null)
fi
if [ ! -e "$torch/lib/libtorch.so" ]; then
  echo "headspan: PyTorch's folder is not found; name it, SITE-PACKAGES/torch, in HEADSPAN_TORCH_DIR" >&2
  exit 1
fi
for folder in "$torch/lib" "$torch"/../nvidia/*/lib; do  # of the wheel and of its companion packages
  [ -d "$folder" ] && libraries=$libraries:$folder
done
libraries=$libraries:/usr/local/nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # where the driver may be
END
  fi
  cat >> "$partial/$program" <<END
if [ -d "\$here/openmpi" ]; then
  export OMPI_MCA_mca_base_component_path="\$here/openmpi" OPAL_PKGDATADIR="\$here/share-openmpi"
  export OMPI_MCA_ess_singleton_isolated=1  # without a launcher no daemon is started
fi
export HEADSPAN_PROGRAM="\$here/$program"  # because /proc/self/exe is the loader
exec "\$here/lib/${loader##*/}" --library-path "\$libraries" "\$here/bin/$program" "\$@"
END
  chmod +x "$partial/$program"
done
mv "$partial" "$out"
trap - EXIT
echo "bundle: $out, $(du -sm "$out" | cut -f1) MiB" >&2
