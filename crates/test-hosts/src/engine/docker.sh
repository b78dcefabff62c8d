# The watcher of a Docker engine in the directory $1: starts it, waits until nobody uses it, ends it, removes its traces.
dir=$1
socket=unix://$dir/engine.sock
group=/bulkhead-test-${dir##*-}
PATH=$PATH:/usr/sbin:/sbin
cat >"$dir/client" <<TEXT
exec docker -H $socket "\$@"
TEXT
cat >"$dir/daemon.json" <<TEXT
{"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--platform=ptrace"]}}}
TEXT
dockerd --config-file "$dir/daemon.json" --data-root "$dir/root" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" \
    -H "$socket" --iptables=false --ip6tables=false --bridge=none --cgroup-parent "$group" &
engine=$!
(
    tries=0
    until sh "$dir/client" version >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] && kill -0 $engine 2>/dev/null || exit 1
        sleep 0.1
    done
    sh "$dir/client" import "$dir/image.tar" bulkhead-test:1
) && : >"$dir/ready" || : >"$dir/failed"

# As long as any test holds it shared, this waits; then it looks again, because the next test may be about to begin. Under
# the other lock nobody begins to use it.
exec 8>"$dir.lock" 9<"$dir/used"
while :; do
    flock -x 9
    flock -u 9
    sleep 2
    flock -x 8
    flock -n -x 9 && break
    flock -u 8
done
kill $engine
wait $engine
for controller in /sys/fs/cgroup/* /sys/fs/cgroup; do
    rmdir "$controller$group" 2>/dev/null
done
rm -rf "$dir" "$dir.lock"
