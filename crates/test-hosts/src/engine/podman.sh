# The watcher of a podman service in the directory $1: starts it, waits until nobody uses it, ends it, removes its traces.
dir=$1
PATH=$PATH:/usr/sbin:/sbin
# The limit of open files that it would ask for is more than every machine allows.
limit=$(ulimit -H -n)
[ "$limit" != unlimited ] || limit=20000
cat >"$dir/containers.conf" <<TEXT
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
default_ulimits = ["nofile=$limit:$limit", "nproc=4096:4096"]
TEXT
cat >"$dir/client" <<TEXT
CONTAINERS_CONF=$dir/containers.conf exec podman --root "$dir/root" --runroot "$dir/run" --tmpdir "$dir/tmp" \
    --storage-driver overlay "\$@"
TEXT
sh "$dir/client" import "$dir/image.tar" bulkhead-test:1 || : >"$dir/failed"
sh "$dir/client" system service --time=0 "unix://$dir/engine.sock" &
engine=$!
tries=0
until [ -S "$dir/engine.sock" ]; do
    tries=$((tries + 1))
    if [ $tries -ge 300 ] || ! kill -0 $engine 2>/dev/null; then
        : >"$dir/failed"
        break
    fi
    sleep 0.1
done
[ -e "$dir/failed" ] || : >"$dir/ready"

exec 8>"$dir.lock" 9<"$dir/used"
while :; do
    flock -x 9
    flock -u 9
    sleep 2
    flock -x 8
    flock -n -x 9 && break
    flock -u 8
done
sh "$dir/client" rm --force --all --time 0
kill $engine
wait $engine
umount "$dir/root/overlay" 2>/dev/null
rm -rf "$dir" "$dir.lock"
