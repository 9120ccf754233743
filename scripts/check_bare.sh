#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the README's two commands work on a bare machine: makes a minimal Debian 12 in a folder, copies the
# committed tree into it, and runs quickstart.sh (twice) and test.sh there. Needs root, debootstrap, git and about
# 6 GB. Mirror and network settings are the host's. Usage: check_bare.sh [FOLDER]   (default: a new one, removed at the end)
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $(id -u) -eq 0 ]] || { echo "check_bare: needs root (chroot, mount)" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "check_bare: needs debootstrap (apt install debootstrap)" >&2; exit 1; }

keep=0 root=${1:-}
if [[ -n "$root" ]]; then keep=1; mkdir -p "$root"; else root=$(mktemp -d "${TMPDIR:-/tmp}/convoy-bare.XXXXXX"); fi
clean_up() {
  local point
  for point in sys dev/shm dev proc; do mountpoint -q "$root/$point" && umount "$root/$point"; done
  # Never through a mount that is still there.
  if ((!keep)) && ! grep -q " $root/" /proc/mounts; then rm -rf --one-file-system "$root"; fi
}
trap clean_up EXIT

# The first Debian mirror that the host itself uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/\?$' || true)
if [[ ! -e "$root/bin/bash" ]]; then
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root" ${mirror:+"$mirror"}
fi
if [[ -n "$mirror" ]]; then echo "deb $mirror bookworm main" >"$root/etc/apt/sources.list"; fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"  # a proxy of the host may have its own
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"
mountpoint -q "$root/dev/shm" || mount -t tmpfs tmpfs "$root/dev/shm"
mountpoint -q "$root/sys" || mount --bind /sys "$root/sys"
rm -rf "$root/root/convoy"
mkdir -p "$root/root/convoy"
git archive HEAD | tar -x -C "$root/root/convoy"

# in_bare COMMAND...: in the tree, with a clean environment.
in_bare() {
  echo "== $*"
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    ${CONVOY_BUILD_JOBS:+CONVOY_BUILD_JOBS="$CONVOY_BUILD_JOBS"} \
    chroot "$root" bash -c 'cd /root/convoy && time "$@"' bash "$@"
}
in_bare scripts/quickstart.sh
in_bare scripts/quickstart.sh
in_bare scripts/test.sh
in_bare scripts/install_deps.sh --tests
echo "check_bare: both commands pass on a bare Debian 12"
