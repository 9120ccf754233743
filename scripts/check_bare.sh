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

source scripts/bare_debian.sh

keep=0 root=${1:-}
if [[ -n "$root" ]]; then keep=1; mkdir -p "$root"; else root=$(mktemp -d "${TMPDIR:-/tmp}/convoy-bare.XXXXXX"); fi
clean_up() { if ((!keep)); then rm -rf --one-file-system "$root"; fi; }
trap clean_up EXIT

make_bare_debian "$root" git
rm -rf "$root/root/convoy"
mkdir -p "$root/root/convoy"
git archive HEAD | tar -x -C "$root/root/convoy"

in_bare() {
  echo "== $*"
  time in_bare_debian "$root" "$@"
}
in_bare scripts/quickstart.sh
in_bare scripts/quickstart.sh
in_bare scripts/test.sh
in_bare scripts/install_deps.sh --tests
echo "check_bare: both commands pass on a bare Debian 12"
