# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Helpers of the suites that run in the rxe guest: results of programs as one TAP stream. A suite
# loads it after "$RXE_LIB" and ends with: echo "1..$count"

count=0
result() { # OK|NOT-OK TEXT
    count=$((count + 1))
    if [ "$1" = ok ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
    fi
}

# program NAME SECONDS COMMAND...: each TAP line of COMMAND is one of ours, with NAME before it; one
# line more says that the program ended well and printed as many as it had announced.
program() {
    local name=$1 seconds=$2 line plan='' seen=0 status=0 started=$SECONDS
    shift 2
    if [ ! -x "$1" ]; then
        result ok "$name # SKIP not built"
        return
    fi
    while IFS= read -r line; do
        case $line in
        'ok '* | 'not ok '*)
            seen=$((seen + 1))
            count=$((count + 1))
            echo "${line%%ok *}ok $count - $name: ${line#*ok * - }"
            ;;
        1..*'SKIP'*)
            plan=0
            echo "# $name: ${line#*SKIP }"
            ;;
        1..*) plan=${line#1..} ;;
        'status '*) status=${line#status } ;;
        '') ;;
        *) echo "# ${line#\# }" ;;
        esac
    done < <(
        timeout -k 5 "$seconds" "$@" 2>&1 </dev/null
        printf '\nstatus %s\n' "$?"
    )
    echo "# $name took $((SECONDS - started)) s"
    if [ "$status" = 124 ]; then
        result not-ok "$name ends within $seconds s"
    elif [ "$status" != 0 ] || [ "$plan" != "$seen" ]; then
        result not-ok "$name ends well (status $status, $seen of ${plan:-unknown} results)"
    else
        result ok "$name ends well"
    fi
}

# plain NAME SECONDS COMMAND...: a program that prints no TAP, its status is the one result.
plain() {
    local name=$1 seconds=$2 log=/tmp/vm_suite.log status=0 started=$SECONDS
    shift 2
    if [ ! -x "$1" ]; then
        result ok "$name # SKIP not built"
        return
    fi
    timeout -k 5 "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" = 0 ]; then
        result ok "$name"
    else
        result not-ok "$name (status $status)"
    fi
    echo "# $name took $((SECONDS - started)) s"
    sed 's/^\(# \)\{0,1\}/# /' "$log"
}

devices='0 1' # that under_netem disturbs

# under_netem 'ARGS' COMMAND...: COMMAND while all directions suffer, for example
#   under_netem 'loss 1% delay 1ms' program transport_loss 120 "$build/test/protocol/..."
under_netem() {
    local args=$1 n
    shift
    for n in $devices; do
        # shellcheck disable=SC2086
        rxe_netem "$n" $args || result not-ok "netem $args"
    done
    "$@"
    for n in $devices; do
        rxe_clear "$n"
    done
}

# Programs load only rxe's part of libibverbs, not that of every NIC, which is slow here.
only_rxe() {
    [ -n "${RXE_VM:-}" ] || return # what is written in the guest is thrown away
    find /etc/libibverbs.d -name '*.driver' ! -name rxe.driver -delete
}
