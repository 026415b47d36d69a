# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# In the host's root: run the job, send its output and its status to the host, power off.
run=/run/rxe-vm
bb=$run/busybox
$bb hostname rxe-vm
$bb ip link set lo up

port() { # NAME: the device of a virtio port
    for dir in /sys/class/virtio-ports/*; do
        if [ "$($bb cat "$dir/name")" = "$1" ]; then
            echo "/dev/${dir##*/}"
        fi
    done
}
uptime() {
    $bb cut -d ' ' -f 1 /proc/uptime
}

boot=$(uptime)
# Pipes in between: a port can be open only once, and a program may open /dev/stderr again.
$bb mkfifo $run/out $run/err
$bb cat <$run/out >"$(port out)" &
out=$!
$bb cat <$run/err >"$(port err)" &
err=$!
$bb setsid /bin/bash $run/job/script >$run/out 2>$run/err </dev/null
status=$?
# A process that CMD left behind may hold the pipes open: wait 2 s for them, no longer.
n=0
while [ $n -lt 100 ] && $bb grep -qs '^State:.[^Z]' /proc/$out/status /proc/$err/status; do
    $bb usleep 20000
    n=$((n + 1))
done
printf 'boot %s\nend %s\nstatus %s\n' "$boot" "$(uptime)" "$status" >$run/job/status
$bb sync
$bb usleep 50000
$bb poweroff -f
