# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of gemmar_info: a folder to work in, TAP, a made-up /sys with one GPU.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 bad=0
for name in $(compgen -e); do
    case $name in NCCL_* | GEMMAR_*) unset "$name" ;; esac
done
export HOME=$work # no ~/.nccl.conf but the test's

report() { # GOOD NAME TEXT
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        bad=1
        echo "not ok $number - $2"
        sed "s/^/# /" <<<"$3"
        sed 's/^/# /' "$work/out"
    fi
}

# NAME STATUS PATTERN COMMAND...: the exit status, and a line of the output
expect() {
    local name=$1 status=$2 pattern=$3 got
    shift 3
    timeout 60 "$@" >"$work/out" 2>&1
    got=$?
    [ "$got" -eq "$status" ] && grep -Eq -- "$pattern" "$work/out"
    report $? "$name" "status $got, want $status, and a line like: $pattern"
}

also() { # PATTERN: in the output of the last command
    grep -Eq -- "$1" "$work/out"
    report $? "... and says '$1'" "no line like: $1"
}

never() { # PATTERN: not in the output of the last command
    ! grep -Eq -- "$1" "$work/out"
    report $? "... and does not say '$1'" "a line like: $1"
}

# NAME STATUS EXPRESSION COMMAND...: the output is one JSON object `d` for which EXPRESSION holds.
# The interpreter runs without the sanitizer that the program may need ahead of it.
json() {
    local name=$1 status=$2 expression=$3 got
    shift 3
    timeout 60 "$@" >"$work/out" 2>"$work/err"
    got=$?
    if ! command -v python3 >/dev/null; then
        number=$((number + 1))
        echo "ok $number - $name # SKIP no python3"
        return
    fi
    [ "$got" -eq "$status" ] && [ ! -s "$work/err" ] &&
        env -u LD_PRELOAD python3 -m json.tool "$work/out" >/dev/null &&
        env -u LD_PRELOAD python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$work/out" "$expression"
    report $? "$name" "status $got, want $status, and $expression"
}

# DIR: a GPU behind a root port of pci0000:00
make_root() {
    local bus=$1/sys/devices/pci0000:00/0000:00:1f.0/0000:1b:00.0
    mkdir -p "$bus" "$1/sys/bus/pci/devices" "$1/proc/driver/nvidia/gpus/0000:1b:00.0"
    echo 0x10de >"$bus/vendor"
    echo 0x030200 >"$bus/class"
    echo 1 >"$bus/numa_node"
    ln -s "../../../devices/pci0000:00/0000:00:1f.0/0000:1b:00.0" "$1/sys/bus/pci/devices/0000:1b:00.0"
    printf 'Model: \t\t NVIDIA Test\nIRQ:\t7\n' >"$1/proc/driver/nvidia/gpus/0000:1b:00.0/information"
}

finish() {
    echo "1..$number"
    exit "$bad"
}
