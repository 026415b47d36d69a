#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# field_cases.sh SOURCE TESTS: every test that SOURCE/docs/field-cases.md names is one of meson's
# (TESTS, its intro-tests.json) or a word of the tests' sources.
set -eu
table=$1/docs/field-cases.md missing=0 names=0
# shellcheck disable=SC2016 # the quotes are those of the table
for name in $(awk -F'|' '/^\| [A-Z]-[0-9]/ { print $5 }' "$table" | grep -o '`[^`]*`' | tr -d '`' | sort -u); do
    names=$((names + 1))
    if ! grep -qF "\"name\": \"$name\"" "$2" &&
        ! grep -rqE "START_TEST\($name\)|\{\"$name\"," "$1/test"; then
        echo "no test is named $name"
        missing=1
    fi
done
[ "$names" -gt 50 ] || { echo "only $names names in $table"; exit 1; }
if grep -E '^\| [A-Z]-[0-9]+ ★' "$table" | grep -vq '`'; then
    echo 'a ★ case without a test'
    missing=1
fi
exit "$missing"
