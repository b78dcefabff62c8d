# Makes the trees that every case finds: trees.sh DIR FIRST LAST makes DIR/t$FIRST … DIR/t$LAST.
# Run by the recorder on the machine itself, and by the suite on each host. Hundreds are made, so programs are started for all
# of them at once, or at most once for each.
set -eu
cd "$1"
umask 022
dirs='' closed='' fixed='' locked=''
n=$2
while [ "$n" -le "$3" ]; do
    dirs="$dirs t$n/dir/sub/deep t$n/empty t$n/full t$n/closed/inside t$n/locked/sub"
    closed="$closed t$n/closed t$n/secret" fixed="$fixed t$n/fixed" locked="$locked t$n/locked"
    n=$((n + 1))
done
mkdir -p special $dirs
[ -p special/fifo ] || {
    ln -s file special/link
    ln -s dir special/dirlink
    ln -s nowhere special/dangling
    ln -s loop special/loop
    mkfifo special/fifo
}
n=$2
while [ "$n" -le "$3" ]; do
    cd "t$n"
    cp -a ../special/link ../special/dirlink ../special/dangling ../special/loop ../special/fifo .
    printf 'content\n' >file
    printf 'one\n' >dir/one
    printf 'two\n' >dir/two
    printf 'three\n' >dir/sub/three
    printf 'secret\n' >secret
    printf 'fixed\n' >fixed
    : >full/x
    : >blank
    : >closed/x
    : >locked/x
    cd ..
    n=$((n + 1))
done
chmod 0 $closed
chmod 444 $fixed
chmod 555 $locked
