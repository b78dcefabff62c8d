#!/bin/sh
# record.sh NODE OUT: runs the cases on this Node as root and as nobody, and writes OUT/root.json and OUT/user.json.
# Needs root: it mounts a read-only file system and becomes another user.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
for who in root user; do
    BASE=$(mktemp -d)
    export BASE
    chmod 755 "$BASE"
    # The scripts too, so that nobody can read them.
    mkdir "$BASE/scripts"
    cp "$here/record.mjs" "$here/trees.sh" "$BASE/scripts"
    sh "$here/inside.sh" "$who" "$1" --no-warnings "$BASE/scripts/record.mjs" "$BASE" >"$2/$who.json"
    rm -rf "$BASE"
done
