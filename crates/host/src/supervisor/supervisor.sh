# Bulkhead's supervisor: ends an agent's processes on this machine when the runner that started them is lost.
# It is sent over the connection, needs a POSIX shell, and leaves nothing behind. The module's documentation in
# mod.rs tells how it works as a whole; every function here says only why it is as it is.
#
# $0     the shell to run parts of itself with
# $1     a random name: of its directory, its group and its mark, and the first word of all that it reports
# $2     how many looks, of two seconds each, may pass without a beat
# $3     the levels it may use, best first, separated by commas
# $4-$7  only to end the agent of one that was itself killed: the level, version, group and agent that it reported
# stdin  the runner's requests, one a line: beat, signal ID NAME process|group, on-loss TEXT, end
# stdout its reports, one a line, each after the random name

shell=$0 token=$1 patience=$2 allowed=$3

set -f
umask 077
trap '' HUP INT QUIT PIPE TSTP TTIN TTOU
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
blank=' 	'
nl='
'
IFS=$blank$nl
opens=' (' closes=') '

level='' group='' version='' keeper='' init='' reader='' lead='' agent='' agent_entry='' known=' ' view='' marks=''
on_loss='' loss='' missed=0 left=0

say() {
    echo "$token $*" 2>/dev/null
}

# Not every sleep knows fractions, and one that does not fails at once.
if sleep 0.01 2>/dev/null; then
    short=0.05 naps=4 nap=0.5
else
    short=1 naps=2 nap=1
fi

# ---- what the machine shows of its processes ----------------------------------------------------------------

if [ -r "/proc/$$/stat" ]; then
    view=proc
    grep -q . "/proc/$$/environ" 2>/dev/null
    [ $? -lt 2 ] && marks=environ
elif ps -A -o pid= -o ppid= -o pgid= 2>/dev/null | grep -q "^ *$$ "; then
    # Some succeed where they see nothing, so it has to show this very process.
    view=ps
    # Some can show environments, by one letter or another: this one's own shows whether it did.
    for option in -E -e; do
        case $(BULKHEAD_SUPERVISOR=$token ps -A $option -ww -o pid= -o command= 2>/dev/null) in
        *"BULKHEAD_SUPERVISOR=$token"*) marks=$option && break ;;
        esac
    done
fi

# Prints the number of each process with the mark, or what begins with it.
marked() {
    if [ "$view" = proc ]; then
        set +f
        grep -l "BULKHEAD_SUPERVISOR=$token" /proc/[0-9]*/environ
    else
        ps -A "$marks" -ww -o pid= -o command= | grep "BULKHEAD_SUPERVISOR=$token"
    fi
} 2>/dev/null

# Sets $table: one line a process, "pid:start pPARENT gGROUP sSESSION ". The time of its start tells a process
# from a later one with the same number; ps has no such time.
snapshot() {
    table=$nl
    if [ "$view" = proc ]; then
        set +f
        raw=$(cat /proc/[0-9]*/stat 2>/dev/null)
        set -f
        IFS=$nl held=''
        for line in $raw; do
            IFS=$blank
            # A program's name may hold blanks, brackets and ends of lines: the fields begin after the last bracket.
            line=$held$line held=''
            case $line in
            [0-9]*"$opens"*"$closes"[A-Za-z]" "[0-9]*) ;;
            *) held="$line " && continue ;;
            esac
            # shellcheck disable=SC2086
            set -- ${line%% *} ${line##*"$closes"}
            # Neither the dead nor the kernel's own.
            case $2,$4 in
            [ZXx],* | *,0) ;;
            *) table="$table$1:${21} p$3 g$4 s$5 $nl" ;;
            esac
        done
    elif [ "$view" = ps ]; then
        raw=$(ps -A -o pid= -o ppid= -o pgid= 2>/dev/null)
        IFS=$nl
        for line in $raw; do
            IFS=$blank
            # shellcheck disable=SC2086
            set -- $line
            table="$table$1:0 p$2 g$3 s0 $nl"
        done
    fi
    IFS=$blank$nl
}

# Sets $child to the first child of a process in $table besides $2.
child_of() {
    child=''
    IFS=$nl
    for line in $table; do
        case $line in
        "${2:-0}:"*) ;;
        *" p$1 "*)
            child=${line%%:*}
            break
            ;;
        esac
    done
    IFS=$blank$nl
    [ -n "$child" ]
}

# Sets $parent.
parent_of() {
    parent=''
    if [ "$view" = proc ]; then
        [ -r "/proc/$1/status" ] || return 1
        while read -r key value; do
            case $key in PPid:) parent=$value && break ;; esac
        done 2>/dev/null <"/proc/$1/status"
    else
        # shellcheck disable=SC2046
        set -- $(ps -o ppid= -p "$1" 2>/dev/null)
        parent=${1:-}
    fi
    [ -n "$parent" ]
}

# ---- whether the session here is gone -----------------------------------------------------------------------

# The connection's process is the parent of this session's leader: a login shell may stand between it and us.
# Only what is between is watched; the connection's own ancestors may come and go while it lives.
watched=''
watch_session() {
    leader=''
    if [ "$view" = proc ]; then
        read -r line <"/proc/$$/stat"
        # shellcheck disable=SC2086
        set -- ${line##*"$closes"}
        leader=$3
    elif [ "$view" = ps ]; then
        # shellcheck disable=SC2046
        set -- $(ps -o pgid= -p $$)
        leader=${1:-}
    else
        return
    fi
    pid=$$
    while parent_of "$pid"; do
        watched="$watched $pid:$parent"
        if [ "$pid" = "$leader" ] || [ "$parent" -le 1 ]; then
            return
        fi
        pid=$parent
    done
    watched=''
}

session_is_gone() {
    for pair in $watched; do
        parent_of "${pair%:*}" && [ "$parent" = "${pair#*:}" ] || return 0
    done
    return 1
}

# ---- level: control group -----------------------------------------------------------------------------------

# A process of its own tries to enter: some shells make no process for a part in brackets, and would enter themselves.
try_group() {
    group=$2/bulkhead-$token version=$1
    mkdir "$group" 2>/dev/null || return 1
    if "$shell" -c 'echo 0 >"$0/cgroup.procs"' "$group" 2>/dev/null; then
        return 0
    fi
    rmdir "$group" 2>/dev/null
    return 1
}

# Sets $own to this process's group in the hierarchy with the given prefix.
own_group() {
    own=/
    while IFS= read -r line; do
        case $line in
        $1*) own=${line#*:*:} ;;
        esac
    done <"/proc/$$/cgroup"
}

use_group() {
    [ -r /proc/mounts ] && [ -r "/proc/$$/cgroup" ] || return 1
    two='' one=''
    while read -r device at type flags rest; do
        case $type,$flags, in
        cgroup2,*) two=${two:-$at} ;;
        cgroup,*,freezer,*) one=${one:-$at} ;;
        esac
    done </proc/mounts
    # At the top first: whoever owns the group we happen to sit in may remove it or count on what is in it.
    if [ -n "$two" ]; then
        own_group '0::'
        for at in "$two" "$two${own%/}"; do
            try_group 2 "$at" && return 0
        done
    fi
    if [ -n "$one" ]; then
        own_group '*:freezer:'
        for at in "$one" "$one${own%/}"; do
            try_group 1 "$at" && return 0
        done
    fi
    return 1
}

# Sets $groups to the group and those that the agent made in it, the deepest last.
groups_below() {
    groups=''
    set +f
    set -- "$group"
    while [ $# -gt 0 ]; do
        groups="$groups$nl$1"
        for sub in "$1"/*/; do
            [ -d "$sub" ] && set -- "$@" "${sub%/}"
        done
        shift
    done
    set -f
}

# Sets $pids to every process in the group.
group_pids() {
    pids=''
    groups_below
    IFS=$nl
    for dir_in in $groups; do
        [ -r "$dir_in/cgroup.procs" ] || continue
        while read -r pid; do
            pids="$pids $pid"
        done 2>/dev/null <"$dir_in/cgroup.procs"
    done
    IFS=$blank$nl
    [ -n "$pids" ]
}

# Frozen, nothing can fork while it is looked at; the kernel's own kill needs no such help.
kill_group() {
    if [ -w "$group/cgroup.kill" ]; then
        echo 1 >"$group/cgroup.kill" && return
    fi 2>/dev/null
    frozen='' thawed='' switch=''
    if [ "$version" = 1 ]; then
        switch=freezer.state frozen=FROZEN thawed=THAWED
    elif [ -w "$group/cgroup.freeze" ]; then
        switch=cgroup.freeze frozen=1 thawed=0
    fi
    [ -n "$switch" ] && echo $frozen >"$group/$switch"
    group_pids && signal_all KILL $pids
    [ -n "$switch" ] && echo $thawed >"$group/$switch"
} 2>/dev/null

remove_group() {
    groups_below
    IFS=$nl
    backwards=''
    for dir_in in $groups; do
        backwards="$dir_in$nl$backwards"
    done
    for dir_in in $backwards; do
        rmdir "$dir_in" 2>/dev/null
    done
    IFS=$blank$nl
}

# ---- level: process namespace -------------------------------------------------------------------------------

# The namespace's first process lives as long as this supervisor holds the other end of its standard input, so
# that the end of the supervisor, however it comes, is the end of the agent. It waits, and so buries all orphans.
init_script='
trap "" HUP INT QUIT TERM PIPE TSTP TTIN TTOU
exec 9<&0
( while read -r request; do kill -s TERM -- -1; kill -s CONT -- -1; done ) <&9 2>/dev/null &
exec 9<&-
wait'

try_namespace() {
    # shellcheck disable=SC2086
    "$unshare" $1 --pid --fork --propagation slave --mount-proc "$shell" -c "$init_script" \
        <"$dir/init" >/dev/null 2>&1 3<&- 4<&- 7<&- &
    keeper=$!
    enter=''
    case $1 in *--user*) enter='--user --preserve-credentials' ;; esac
    enter="$nsenter $enter --target $keeper --mount --pid=/proc/$keeper/ns/pid_for_children"
    tries=0
    while kill -0 "$keeper" 2>/dev/null && [ $tries -lt 40 ]; do
        snapshot
        if child_of "$keeper" && init=$child && child_of "$init"; then
            reader=$child
            # shellcheck disable=SC2016,SC2086
            $enter --no-fork "$unshare" --fork "$shell" -c '[ -p "$0" ] && [ -r "/proc/$$/stat" ]' "$dir/events" \
                </dev/null >/dev/null 2>&1 && return 0
            break
        fi
        tries=$((tries + 1))
        sleep $short
    done
    kill -s KILL "$keeper" $init 2>/dev/null
    init='' reader='' keeper=''
    return 1
}

# Only util-linux's tools pass everything on: nsenter a program's end by any signal, but it does not survive the
# interrupt that a terminal sends to both; unshare does, but it tells an end by KILL as code 1. So with a terminal it
# is unshare that waits for the agent, and a KILL that was asked for goes to it too. Each stops with the agent.
use_namespace() {
    [ "$view" = proc ] || return 1
    unshare=$(command -v unshare) && nsenter=$(command -v nsenter) || return 1
    case $("$unshare" --version 2>/dev/null) in *util-linux*) ;; *) return 1 ;; esac
    case $("$nsenter" --version 2>/dev/null) in *util-linux*) ;; *) return 1 ;; esac
    mkfifo "$dir/init" || return 1
    exec 7<>"$dir/init"
    case $(id -u) in
    0) try_namespace '' || try_namespace '--user --map-root-user' ;;
    *) try_namespace '--user --map-current-user' ;;
    esac && return 0
    exec 7<&-
    rm -f "$dir/init"
    return 1
}

# Every process in it descends from its first one, or from the one through which the agent came in.
namespace_lives() {
    snapshot
    child_of "$init" "$reader" || { [ -n "$lead" ] && child_of "$lead"; }
}

# ---- level: process tree ------------------------------------------------------------------------------------

# Brings $known up to date: " pid:start" of each live process of the agent, and of each dead one whose process
# group or session still has members. Belongs to the agent: a child of its processes, a member of their groups
# and sessions (so a second fork is found after its parent has gone), and whatever carries the mark.
collect() {
    snapshot
    old=$known known=' ' numbers=' '
    for entry in $old; do
        number=${entry%:*}
        case $table in
        *"$nl$entry "*) ;;
        *"$nl$number:"*) continue ;;
        *" g$number "* | *" s$number "*) ;;
        *) continue ;;
        esac
        known="$known$entry " numbers="$numbers$number "
    done
    if [ "$1" = marked ] && [ -n "$marks" ]; then
        found=$(marked)
        IFS=$nl
        for line in $found; do
            line=${line#/proc/}
            line=${line#"${line%%[0-9]*}"}
            remember "${line%%[!0-9]*}"
        done
        IFS=$blank$nl
    fi
    grown=yes
    while [ -n "$grown" ]; do
        grown=''
        IFS=$nl
        for line in $table; do
            entry=${line%% *}
            case $known in *" $entry "*) continue ;; esac
            above=${line#* p} && above=${above%% *}
            in_group=${line#* g} && in_group=${in_group%% *}
            in_session=${line#* s} && in_session=${in_session%% *}
            case $numbers in
            *" $above "* | *" $in_group "* | *" $in_session "*)
                known="$known$entry " numbers="$numbers${entry%:*} " grown=yes
                ;;
            esac
        done
        IFS=$blank$nl
    done
}

# Adds a process that is in $table.
remember() {
    case $numbers in *" $1 "*) return ;; esac
    case $table in
    *"$nl$1:"*)
        entry=${table#*"$nl$1:"}
        known="$known$1:${entry%% *} " numbers="$numbers$1 "
        ;;
    esac
}

# Sets $pids to those of the known processes that live.
tree_pids() {
    pids=''
    for entry in $known; do
        case $table in *"$nl$entry "*) pids="$pids ${entry%:*}" ;; esac
    done
    [ -n "$pids" ]
}

# All are stopped before any is killed, and looked for again until there is no new one: what is stopped does not fork.
# Comes after a look, whose result is in $pids.
kill_tree() {
    tries_stop=0
    while [ $tries_stop -lt 50 ]; do
        signal_all STOP $pids
        before=$known
        collect marked
        tree_pids || return
        [ "$known" = "$before" ] && break
        tries_stop=$((tries_stop + 1))
    done
    signal_all KILL $pids
    tries_stop=0
    while any_of $pids && [ $tries_stop -lt 20 ]; do
        sleep $short
        tries_stop=$((tries_stop + 1))
    done
}

# A look at all processes is dear; this one is not, and those that come meanwhile are found before the killing.
any_of() {
    for pid in "$@"; do
        kill -0 "$pid" && return 0
    done
    return 1
} 2>/dev/null

# ---- ending -------------------------------------------------------------------------------------------------

signal_all() {
    name=$1
    shift
    for pid in "$@"; do
        kill -s "$name" -- "$pid"
    done
} 2>/dev/null

# Sets $pids where the level can tell them.
agent_lives() {
    case $level in
    cgroup) group_pids ;;
    namespace) namespace_lives ;;
    tree) collect marked && tree_pids ;;
    group) [ -n "$agent" ] && { kill -0 "-$agent" || kill -0 "$agent"; } ;;
    *) false ;;
    esac
} 2>/dev/null

# A stopped process cannot act on a request before it goes on.
ask() {
    case $level in
    cgroup | tree) signal_all TERM $pids && signal_all CONT $pids ;;
    namespace)
        echo term >&7
        is_running && kill -s CONT "$lead"
        ;;
    group) signal_all TERM "-$agent" "$agent" && signal_all CONT "-$agent" "$agent" ;;
    esac
} 2>/dev/null

destroy() {
    case $level in
    cgroup) kill_group ;;
    namespace)
        exec 7>&-
        kill -s KILL "$init"
        ;;
    tree) kill_tree ;;
    group) signal_all KILL "-$agent" "$agent" ;;
    esac
} 2>/dev/null

end_agent() {
    if agent_lives; then
        ask
        waited=0
        while [ $waited -lt $naps ] && { [ "$level" = tree ] && any_of $pids || agent_lives; }; do
            sleep $nap
            waited=$((waited + 1))
        done
    fi
    [ "$level" = namespace ] && destroy
    tries=0
    while still_lives; do
        [ $tries -ge 40 ] && left=1 && break
        destroy
        sleep $short
        tries=$((tries + 1))
    done
    [ "$level" = cgroup ] && remove_group
    [ -n "$dir" ] && rm -rf "$dir"
}

# The namespace ends as a whole, with its first process.
still_lives() {
    if [ "$level" = namespace ]; then
        kill -0 "$init" 2>/dev/null
    else
        agent_lives
    fi
}

finish() {
    end_agent
    waited=0
    while [ -n "$loss" ] && kill -0 "$loss" 2>/dev/null && [ $waited -lt 60 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    exec 3<&-
    kill "$relay" "$ticker" 2>/dev/null
    say ended $left
    exit 0
}

lost() {
    say lost "$1"
    if [ -n "$on_loss" ]; then
        (eval "$on_loss") </dev/null >/dev/null 2>&1 3<&- 4<&- 7<&- &
        loss=$!
    fi
    finish
}

dir=''
if [ -n "${4:-}" ]; then
    level=$4 version=$5 group=$6 agent=${7%%:*} known=" $7 "
    end_agent
    say ended $left
    exit 0
fi

# ---- its directory: the queue of events, and the two scripts that start the agent ------------------------------

for base in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm "${XDG_RUNTIME_DIR:-/tmp}" "${HOME:-/tmp}"; do
    dir=$base/.bulkhead-$token
    case $dir in *"'"*) continue ;; esac
    if mkdir "$dir" 2>/dev/null; then
        mkfifo "$dir/events" "$dir/go" 2>/dev/null && break
        rm -rf "$dir"
    fi
    dir=''
done
if [ -z "$dir" ]; then
    say refused "no directory there in which a named pipe can be made: set TMPDIR to one"
    exit 1
fi
# Opened for both first, since opening one end alone waits for the other.
exec 4<>"$dir/events" 3<"$dir/events" 5>"$dir/events" 4<&-
exec 4<>"$dir/go" 6<&0 </dev/null

(
    while read -r request; do
        echo "runner $request" || exit
    done
    echo closed
) <&6 >&5 2>/dev/null 3<&- 4<&- 5>&- 6<&- &
relay=$!
(
    while sleep 2 && echo tick; do :; done
) </dev/null >&5 2>/dev/null 3<&- 4<&- 5>&- 6<&- &
ticker=$!
exec 5>&- 6<&-
trap 'lost "the supervisor was told to end"' TERM

choose_level() {
    IFS=,
    for level in $allowed; do
        IFS=$blank$nl
        case $level in
        cgroup) use_group && return ;;
        namespace) use_namespace && return ;;
        tree) [ -n "$view" ] && return ;;
        group) return ;;
        none) return ;;
        esac
    done
    IFS=$blank$nl
    level=''
}

# The first parts of the agent's own session. They run with the agent's environment, so they use only what is
# built into every shell, and end by becoming the agent. Nobody reads $dir/go but one that may start now.
write_scripts() {
    enter_group='' mark=''
    case $level in
    cgroup) enter_group="echo \$\$ >'$group/cgroup.procs' || exit 125" ;;
    tree) [ -n "$marks" ] && mark="export BULKHEAD_SUPERVISOR=$token" ;;
    esac
    become="command -v \"\$1\" >/dev/null 2>&1 || { echo missing >'$dir/events'; exit 127; }
$mark
{ echo \"agent \$\$\" >'$dir/events' && read -r bulkhead_gate; } <'$dir/go' || exit 125
exec \"\$@\""
    if [ "$level" = namespace ]; then
        cat >"$dir/inside" <<END
cd -- "\$1" || exit 125
shift
$become
END
        become="echo \"lead \$\$\" >'$dir/events' || exit 125
[ -t 0 ] && exec $enter --no-fork '$unshare' --fork '$shell' -c '. \"\$0\"' '$dir/inside' \"\$(pwd)\" \"\$@\"
exec $enter '$shell' -c '. \"\$0\"' '$dir/inside' \"\$(pwd)\" \"\$@\""
    fi
    cat >"$dir/agent" <<END
$enter_group
$become
END
}

choose_level
if [ -z "$level" ]; then
    rm -rf "$dir"
    kill "$relay" "$ticker" 2>/dev/null
    say refused "none of the ways allowed ($allowed) can end a process tree there"
    exit 1
fi
watch_session
if [ "$level" = none ]; then
    rm -rf "$dir"
    dir=''
    exec 4<&-
else
    write_scripts
fi
detail=$version
[ "$level" = tree ] && detail=${marks:+marks}
say ready "$level" "${detail:--}" "${group:--}" "$dir"

# ---- events -------------------------------------------------------------------------------------------------

# It waits at the gate with the way through it open already, so the directory is done with.
started() {
    agent=$1
    snapshot
    if [ "$level" = namespace ]; then
        child_of "$lead" || return
        agent=$child
    fi
    numbers=' '
    remember "$agent"
    agent_entry=${known# }
    agent_entry=${agent_entry% }
    echo go >&4
    exec 4<&-
    rm -rf "$dir"
    dir=''
}

# Sets $start, the time at which a process that still runs was started.
start_of() {
    start=''
    set -- "$(cat "/proc/$1/stat" 2>/dev/null)"
    # shellcheck disable=SC2086
    set -- ${1##*"$closes"}
    case ${1:-Z} in Z | X | x) return 1 ;; esac
    start=${20}
}

is_running() {
    case $view in
    proc) start_of "$agent" && [ "$agent:$start" = "$agent_entry" ] ;;
    ps) [ -n "$(ps -o pid= -p "$agent" 2>/dev/null)" ] ;;
    *) kill -0 "$agent" 2>/dev/null ;;
    esac
}

# To those of the agent's processes that are in its group, and not to a login shell that may be in it too.
signal_agent() {
    case $level,$1 in namespace,KILL | namespace,CONT) kill -s "$1" "$lead" ;; esac
    if [ "$2" = process ] || [ -z "$view" ]; then
        target=$agent
        [ "$2" = group ] && target=-$agent
        kill -s "$1" -- "$target"
        return
    fi
    saved=$known
    collect unmarked
    entry=${table#*"$nl$agent:"}
    entry=${entry%%"$nl"*}
    in_group=${entry#* g} && in_group=${in_group%% *}
    chosen=''
    tree_pids
    for pid in $pids; do
        entry=${table#*"$nl$pid:"}
        entry=${entry%%"$nl"*}
        case $entry in *" g$in_group "*) chosen="$chosen $pid" ;; esac
    done
    [ "$level" = tree ] || known=$saved
    signal_all "$1" $chosen
} 2>/dev/null

look() {
    missed=$((missed + 1))
    [ "$missed" -le "$patience" ] || lost "no beat for $patience looks"
    session_is_gone && lost "the session's process is gone"
    if [ -n "$agent" ]; then
        if [ "$level" = tree ]; then
            collect unmarked
        fi
        is_running || finish
    fi
}

while read -r kind rest <&3; do
    case $kind in
    tick) look ;;
    closed) lost "the connection is closed" ;;
    missing) say missing ;;
    lead) lead=$rest ;;
    agent) started "$rest" && say started "$agent_entry" ;;
    runner)
        # shellcheck disable=SC2086
        set -- $rest
        case ${1:-} in
        beat) missed=0 ;;
        signal)
            [ -n "$agent" ] && is_running && signal_agent "$3" "$4"
            say signalled "$2"
            ;;
        on-loss) on_loss="$on_loss${rest#on-loss }$nl" ;;
        end) finish ;;
        esac
        ;;
    esac
done
lost "the supervisor's queue is closed"
