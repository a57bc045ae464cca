#!/usr/bin/env bash
# Builds an image of packaging/apptainer from the last commit, and runs a study in it under a Slurm of two nodes on this
# machine (test_image.py), whose results must be those of build/release. As root on Debian, without Docker's registry: the
# base is made by debootstrap, and apptainer is that of Debian's unstable if there is none in the PATH. Fetches 1 GB with
# apt, for cuda 3 GB with pip, and compiles for 10 minutes.
#
#   bash tests/packaging/image.sh [cuda] [IMAGE.sif]
#
#       cuda:       that of headspan-cuda.def; what it does is done without a GPU
#       IMAGE.sif:  an image that is there, instead of building one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name=headspan folder=$PWD/build/packaging
[[ ${1:-} != cuda ]] || { name=headspan-cuda; shift; }
image=${1:-}
bash jobs/packages.sh test
mkdir -p "$folder/bin"
mirror=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' 'Origin: Debian' | head -n 1)

# debian SUITE FOLDER PACKAGE...: a small Debian that uses apt, and trusts servers, as this machine does.
debian() {
  [[ ! -d $folder/$2 ]] || return 0
  command -v debootstrap > /dev/null || apt-get install -y --no-install-recommends debootstrap
  rm -rf "$folder/partial"
  debootstrap --variant=minbase ${3:+--include="$3"} "$1" "$folder/partial" "$mirror"
  cp /etc/apt/apt.conf.d/* "$folder/partial/etc/apt/apt.conf.d/"
  mkdir -p "$folder/partial/usr/local/share"
  cp -r /usr/local/share/ca-certificates "$folder/partial/usr/local/share/"  # the machine's own, if any
  echo force-unsafe-io > "$folder/partial/etc/dpkg/dpkg.cfg.d/unsafe"  # as in Docker's
  rm -rf "$folder/partial"/dev/*  # an image has no devices, and root may not make any
  mv "$folder/partial" "$folder/$2"
}

if ! command -v apptainer > /dev/null; then
  debian sid unstable apptainer,squashfuse,fuse2fs,git
  cp /etc/hosts /etc/resolv.conf "$folder/unstable/etc/"
  echo root:0:65536 | tee "$folder/unstable/etc/subuid" > "$folder/unstable/etc/subgid"
  # Its root is that of unstable, with the folders of this machine that hold the tests and their files. In a namespace of
  # users, because apptainer wants every capability of root, which containers lack.
  cat > "$folder/bin/apptainer" << END_OF_SCRIPT
#!/bin/sh
exec unshare --mount sh -c '
  root=\$1 here=\$PWD; shift
  mount --bind \$root \$root
  for name in proc sys dev tmp root ${PWD#/}; do mkdir -p \$root/\$name; mount --rbind /\$name \$root/\$name || exit 1; done
  cd \$root && pivot_root . . && umount -l . && cd "\$here" &&
    exec unshare --user --map-users 0,0,65536 --map-groups 0,0,65536 --setuid 0 --setgid 0 /usr/bin/apptainer "\$@"
  ' sh "$folder/unstable" "\$@"
END_OF_SCRIPT
  printf '#!/bin/sh\nexec apptainer run "$@"\n' > "$folder/bin/run-singularity"  # what starts an image that is called
  chmod +x "$folder"/bin/*
fi
export PATH=$folder/bin:$PATH

if [[ -z $image ]]; then
  debian bookworm bookworm
  image=$folder/$name.sif
  apptainer build --force --build-arg bootstrap=localimage --build-arg base="$folder/bookworm" "$image" \
    "packaging/apptainer/$name.def"
fi
[[ -x build/release/headspan ]] || bash jobs/build.sh headspan
/usr/bin/python3 -B tests/packaging/test_image.py build/release/headspan mpiexec "$(realpath "$image")"
