#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# trace_text.sh TEST_TRACE PLOT_TRACE: what plot-trace --text says of a made-up trace, which the
# library's writer has written.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$1" "$dir/trace"

expect() { # NAME ARGUMENTS...: it says what is in "$dir/want"
    name=$1
    shift
    if ! "$plot" --text "$@" 2>&1 | sed "s|$dir|DIR|" | diff - /dev/fd/3 3<"$dir/want"; then
        echo "$name: not what plot-trace says"
        exit 1
    fi
}
plot=$2
cat >"$dir/want" <<'T'
512x1024x64 two-shot push, rank 1: 2 CTAs, 7 items; us since its first begin, 2.5 us after the earliest rank's
                       begun            product done       sources there           staged              stored
  kind    items     first      last     first      last     first      last     first      last     first      last
  part        2       0.0       1.0      50.0      51.0         -         -      51.0      52.0      57.0      58.0
  sum         2      51.0      52.0     101.0     102.0     111.0     112.0     113.0     114.0     120.0     121.0
  reduce      2     113.0     114.0         -         -     143.0     144.0     144.0     145.0     146.0     147.0
  gather      1     145.0     145.0         -         -     195.0     195.0     197.0     197.0         -         -
  medians         product   waiting   staging   sending    stored
  part              50.00         -      1.00      2.00      4.00
  sum               50.00     10.00      2.00      1.00      6.00
  reduce                -     30.00      1.00      1.00      1.00
  gather                -     50.00      2.00      1.00         -
T
expect 'one rank' --rank 1 "$dir/trace"

# The call before, which had more items, is gone.
sed 's/rank 1/rank 0/; s/2\.5 us/0.0 us/' "$dir/want" >"$dir/zero"
cat "$dir/zero" "$dir/want" >"$dir/both"
mv "$dir/both" "$dir/want"
expect 'both ranks' "$dir/trace"

# A file for each rank, as of %r.
grep ' 0 two-shot' "$dir/trace" >"$dir/trace.0"
grep ' 1 two-shot' "$dir/trace" >"$dir/trace.1"
expect 'two files' "$dir/trace.1" "$dir/trace.0"

echo 'plot-trace: no such call; there are: 512x1024x64 two-shot push rank 0, 512x1024x64 two-shot push rank 1' >"$dir/want"
expect 'no such call' --way pull "$dir/trace"

echo '512x1024x64 0 push 1 2' >>"$dir/trace.0"
echo 'plot-trace: DIR/trace.0: not a line of a trace: 512x1024x64 0 push 1 2' >"$dir/want"
expect 'a line of something else' "$dir/trace.0"
