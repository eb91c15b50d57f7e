# Outlives the owner of a private PostgreSQL and cleans up after it.
#
# The owner holds the write end of this script's standard input. Each line it writes names the process to guard now:
# its pid, or "-" for none. The kernel closes the pipe when the owner is gone, however it went, and only then does this
# script act: it stops the guarded process and removes the directory.
#
#   $1  how to ask PostgreSQL to stop: INT (fast) or QUIT (immediate)
#   $2  how many seconds to wait before asking less politely
#   $3  the private directory, which also tells one watchdog from another in `ps`
#   $4  what to do with it: remove or keep

# Whoever signals all of the owner's children must not take the watchdog along.
trap '' HUP INT TERM

# When a process started, so that a pid that was used again is never mistaken for it. Nothing if it is gone; a process
# that waits to be reaped is gone (in a container, nobody may ever reap it).
birth() {
    if [ -r /proc/self/stat ]; then
        { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
        # The name in parentheses may hold anything. State is the 3rd field, start time the 22nd.
        set -- ${stat##*) }
        [ "$1" = Z ] || echo "${20}"
    else
        case $(ps -o state= -p "$1") in Z*) ;; *) ps -o lstart= -p "$1" ;; esac
    fi
}

children() {
    if [ -r /proc/self/stat ]; then
        for entry in /proc/[0-9]*; do
            { read -r stat <"$entry/stat"; } 2>/dev/null || continue
            rest=${stat##*) }
            rest=${rest#* }
            [ "${rest%% *}" = "$1" ] && echo "${entry#/proc/}"
        done
    else
        ps -A -o pid= -o ppid= | while read -r child parent; do
            [ "$parent" = "$1" ] && echo "$child"
        done
    fi
}

alive() {
    [ -n "$born" ] && [ "$(birth "$pid")" = "$born" ]
}

# Succeeds if the guarded process is gone within $1 seconds.
gone_within() {
    tries=$(($1 * 10))
    while alive; do
        [ "$tries" -gt 0 ] || return 1
        tries=$((tries - 1))
        sleep 0.1
    done
}

pid='' born=''
while read -r line; do
    case $line in
        -) pid='' born='' ;;
        *) pid=$line born=$(birth "$line") ;;
    esac
done

if alive; then
    # A frozen process takes no signal but these two. Continue before asking, kill in the end.
    kill -CONT "$pid" $(children "$pid") 2>/dev/null
    kill -"$1" "$pid" 2>/dev/null
    if ! gone_within "$2"; then
        kill -QUIT "$pid" 2>/dev/null
        if ! gone_within 6; then
            kill -KILL "$pid" $(children "$pid") 2>/dev/null
            gone_within 5
        fi
    fi
fi

if [ "$4" = remove ]; then
    # A child that is still exiting may write a last file.
    tries=50
    until rm -rf -- "$3" 2>/dev/null && [ ! -e "$3" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || break
        sleep 0.1
    done
fi
