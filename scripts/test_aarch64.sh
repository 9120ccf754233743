#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cross-compiles convoy for 64-bit Arm and runs the unit tests under qemu. FOLDER is where the Arm system is kept
# (Debian 12 with the libraries of scripts/install_deps.sh); a second run finds it there. The default is arm64 in
# CONVOY_PLATFORMS, or in ~/.cache/convoy/platforms. Other arguments go to ctest. Says what is missing and ends with 77
# where it cannot run: it needs root, debootstrap, qemu-user-static and g++-aarch64-linux-gnu. If the kernel does not yet
# start Arm programs with qemu, it is told so (binfmt_misc), as installing qemu-user-static does.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/common.sh
source scripts/bare_debian.sh

usage="usage: scripts/test_aarch64.sh [FOLDER] [ctest's arguments]"
case "${1:-}" in
  -h | --help) echo "$usage"; exit 0 ;;
  "" | -*) folder=$(platforms_folder)/arm64 ;;
  *) folder=$1; shift ;;
esac

# Arm programs start by themselves: the installation of packages into the system and tests that start programs need it.
register_qemu() {
  local misc=/proc/sys/fs/binfmt_misc rule=/usr/lib/binfmt.d/qemu-aarch64.conf
  [[ -e $misc/register ]] || mount -t binfmt_misc binfmt_misc $misc 2>/dev/null || return 1
  if compgen -G "$misc/qemu-aarch64*" >/dev/null; then return 0; fi
  [[ -e $rule ]] && printf '%s' "$(cat $rule)" 2>/dev/null >$misc/register
}

[[ $(uname -m) == x86_64 ]] || skip "this machine is no x86-64 (on Arm, run scripts/test.sh)"
need_debootstrap
for program in qemu-aarch64-static aarch64-linux-gnu-g++; do
  command -v "$program" >/dev/null || [[ -x /usr/sbin/$program ]] ||
    skip "there is no $program (apt install qemu-user-static g++-aarch64-linux-gnu)"
done
register_qemu || skip "the kernel does not start Arm programs with qemu, and cannot be told to (binfmt_misc)"

# The libraries that install_deps.sh installs, and what starts ranks.
eval "$(sed -n '/^packages=(/,/)$/p' scripts/install_deps.sh)"
wanted=(libc6-dev libstdc++6 libgomp1)
for package in "${packages[@]}"; do
  if [[ "$package" == *-dev || "$package" == openmpi-bin ]]; then wanted+=("$package"); fi
done

# in_system COMMAND...: runs it in the Arm system.
in_system() {
  mkdir -p "$folder/proc"
  unshare --mount bash -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' \
    "$folder" env DEBIAN_FRONTEND=noninteractive "$@"
}

# The linker and CMake on this machine read links of the system: those that begin with / would lead out of it.
make_links_relative() {
  local link target
  while IFS= read -r -d '' link; do
    target=$(readlink "$link")
    ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$folder$target")" "$link"
  done < <(find "$folder/usr/lib" -xdev -type l -lname '/*' -print0)
}

stamp=$folder/convoy-packages
if [[ "$(cat "$stamp" 2>/dev/null)" != "${wanted[*]}" ]]; then
  echo "test_aarch64: making the Arm system in $folder; under emulation this takes minutes"
  if [[ ! -e "$folder/bootstrapped" ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    mirror=$(debian_mirror)
    debootstrap --arch=arm64 --variant=minbase --include=ca-certificates bookworm "$folder" ${mirror:+"$mirror"}
    touch "$folder/bootstrapped"
  fi
  in_system apt-get update -q
  in_system apt-get install -y -q --no-install-recommends "${wanted[@]}"
  in_system apt-get clean
  make_links_relative
  echo "${wanted[*]}" >"$stamp"
fi

folder=$(realpath "$folder")
rmdir "$folder/proc" "$folder/sys" 2>/dev/null || true  # else qemu shows these, which are empty, in place of the machine's
export CONVOY_SYSROOT=$folder QEMU_LD_PREFIX=$folder
if ! grep -qxF "CONVOY_SYSROOT:PATH=$folder" build-aarch64/CMakeCache.txt 2>/dev/null; then rm -rf build-aarch64; fi
build aarch64
export OMP_WAIT_POLICY=passive  # threads that spin cost an emulated CPU the most
allow_mpi_as_root
exec ctest --preset aarch64 -L unit "$@"
