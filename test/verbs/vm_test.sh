#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots the rxe guest once and runs vm_suite.sh in it. Skips with a reason where that cannot be.
# usage: vm_test.sh RXE_VM SUITE BUILD_DIR
set -uo pipefail
rxe_vm=$1 suite=$2 build=$3

skip() {
    echo "1..0 # SKIP $*" # through the TAP protocol: Meson calls any status but 0 an error
    exit 0
}

if [ "$(uname -m)" != x86_64 ]; then
    skip "the guest is an x86-64 machine, this one is $(uname -m)"
fi
if ! reason=$("$rxe_vm" check); then
    if ! said=$("$rxe_vm" build 2>&1); then
        skip "$reason; $(tail -n 1 <<<"$said")"
    fi
fi
# A kernel of an older build still serves; a newer one is fetched only by "rxe-vm build".
exec "$rxe_vm" run --cpus 2 --timeout 840 --stats -- "$suite" "$build"
