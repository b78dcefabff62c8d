# inside.sh root|user PROGRAM ARGUMENTS…
# Runs a program in a mount namespace of its own, with the directory BASE (in the environment) made anew: BASE/ro is a
# read-only file system, BASE/other a file system of its own. As `user` the program runs as nobody.
set -eu
who=$1
shift
export who
exec unshare -m --propagation private sh -c '
    set -eu
    mkdir -p "$BASE/ro" "$BASE/other"
    mount -t tmpfs -o mode=755 none "$BASE/ro"
    mount -t tmpfs -o mode=1777 none "$BASE/other"
    mkdir "$BASE/ro/dir"
    mkdir "$BASE/ro/empty"
    printf "read\n" >"$BASE/ro/file"
    printf "one\n" >"$BASE/ro/dir/one"
    ln -s file "$BASE/ro/link"
    [ "$who" = root ] || chown -R 65534:65534 "$BASE/ro" "$BASE"
    mount -o remount,ro "$BASE/ro"
    # From its descriptor: nobody may not reach the directory that the program lies in.
    exec 9<"$1"
    shift
    [ "$who" = root ] || exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/9 "$@"
    exec /proc/self/fd/9 "$@"
' inside "$@"
