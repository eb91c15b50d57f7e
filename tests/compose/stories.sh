# What is done to the cluster, and what it has to do then. To be sourced. Each story begins and ends with three healthy nodes.

stories=(
    three_nodes_find_each_other_and_are_healthy
    nodes_are_confined
    events_cross_the_cluster
    a_token_made_in_a_container_opens_what_it_names_and_no_more
    b138_a_node_that_is_stopped_leaves_at_once_and_exits_with_0
    a_killed_node_is_gone_after_the_threshold_and_comes_back_when_started
    a_node_that_was_cut_off_comes_back_and_misses_nothing
    b139_probes_restart_nobody_while_the_database_is_away
    b143_after_each_crash_of_postgresql_nodes_are_back_soon_and_not_later_and_later
)

# As tests/compose/override.yml has it, and slack for a busy machine.
threshold=5 heartbeat=1 slack=5
nodes=(node1 node2 node3)

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# eventually SECONDS WHAT COMMAND…
eventually() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $deadline ] || fail "not in time: $what"
        sleep 0.2
    done
}

url() { local port="${1^^}_PORT" && echo "http://127.0.0.1:${!port}"; }
api() { curl -fsS --max-time 5 -H "Authorization: Bearer $ADMIN_TOKEN" "$@"; }
answers() { curl -sS --max-time 5 --output /dev/null --write-out '%{http_code}' "$@"; }
# Asked once: a container keeps its id through stops and starts.
declare -A ids=()
container() { echo "${ids[$1]}"; }
find_containers() { for service in "${nodes[@]}" postgres; do ids[$service]=$(cluster ps --quiet "$service"); done; }
inspect() { docker inspect --format "$2" "$(container "$1")"; }
restarts() { for node in "${nodes[@]}"; do inspect "$node" '{{.RestartCount}}'; done | python3 -c 'import sys; print(sum(map(int, sys.stdin)))'; }
pids() { for node in "${nodes[@]}"; do inspect "$node" '{{.State.Pid}}'; done; }
ready() { curl -fsS --max-time 5 "$(url "$1")/readyz"; }
alive() { curl -fsS --max-time 5 "$(url "$1")/livez"; }
marked() { [ "$(inspect "$1" '{{.State.Health.Status}}')" = "$2" ]; }
sees() { [ "$(curl -fsS --max-time 5 "$(url "$1")/health" | python3 -c 'import json, sys; print(json.load(sys.stdin)["cluster"]["size"])')" = "$2" ]; }
publish() { api "$(url "$1")/api/channels/room:1/events" -H 'Content-Type: application/json' -d "{\"event\":\"message\",\"payload\":\"$2\"}"; }
history_has() { api "$(url "$1")/api/channels/room:1/events?after=oldest&limit=1000" | grep -q "\"$2\""; }
fails() { ! "$@"; }

all_see_each_other() {
    for node in "${nodes[@]}"; do eventually "${1:-60}" "$node is healthy among 3" sees "$node" 3; done
}

three_nodes_find_each_other_and_are_healthy() {
    all_see_each_other
    for node in "${nodes[@]}"; do eventually 30 "Docker takes $node for healthy" marked "$node" healthy; done
}

nodes_are_confined() {
    [ "$(docker exec "$(container node1)" id -u)" = 65532 ] || fail "it runs as root"
    if docker exec --user 0 "$(container node1)" touch /x 2>/dev/null; then fail "its file system can be written"; fi
    [ "$(docker exec "$(container node1)" grep CapEff /proc/1/status | tr -d '\t')" = CapEff:0000000000000000 ] || fail "it has capabilities"
}

events_cross_the_cluster() {
    docker exec -e SWITCHBOARD_TOKEN="$ADMIN_TOKEN" "$(container node3)" switchboard tail room:1 >"$work/tail" &
    tail=$!
    # Until it is seen, since nothing says when a tail has begun.
    published_is_seen() { publish node1 "crosses" && sleep 0.2 && grep -q crosses "$work/tail"; }
    eventually 20 "a durable event crosses" published_is_seen
    typing() {
        api "$(url node2)/api/channels/room:1/events" -H 'Content-Type: application/json' -d '{"event":"typing","payload":1,"ephemeral":true}'
        sleep 0.2
        grep -q typing "$work/tail"
    }
    eventually 20 "an ephemeral event crosses" typing
    kill "$tail"
    tail=
}

a_token_made_in_a_container_opens_what_it_names_and_no_more() {
    local token events
    token=$(docker exec "$(container node1)" switchboard token --sub alice --channel 'room:*=subscribe')
    events=$(url node2)/api/channels/room:1/events
    [ "$(answers "$events" -H "Authorization: Bearer $token")" = 200 ] || fail "it does not open room:1"
    [ "$(answers "$events" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' -d '{"event":"x","payload":1}')" = 403 ] ||
        fail "who may subscribe can publish"
    [ "$(answers "$events")" = 401 ] || fail "no token is needed"
}

b138_a_node_that_is_stopped_leaves_at_once_and_exits_with_0() {
    local began=$SECONDS
    docker stop "$(container node3)" >/dev/null
    # Most of that is Docker's. A node that did not hear the signal would take stop_grace_period, and end with 137.
    [ $((SECONDS - began)) -lt 10 ] || fail "it took $((SECONDS - began)) s to stop"
    [ "$(inspect node3 '{{.State.ExitCode}}')" = 0 ] || fail "it exited with $(inspect node3 '{{.State.ExitCode}}')"
    # It said goodbye: nobody had to wait for the threshold.
    eventually 2 "node1 knows" sees node1 2
    docker start "$(container node3)" >/dev/null
    all_see_each_other
}

a_killed_node_is_gone_after_the_threshold_and_comes_back_when_started() {
    docker kill "$(container node2)" >/dev/null
    local killed=$SECONDS
    eventually $((threshold + heartbeat + slack)) "node1 knows" sees node1 2
    [ $((SECONDS - killed)) -ge $((threshold - heartbeat - 1)) ] || fail "it was given up after $((SECONDS - killed)) s"
    publish node1 "while node2 is dead" >/dev/null
    docker start "$(container node2)" >/dev/null
    all_see_each_other
    history_has node2 "while node2 is dead" || fail "an event is missing"
}

a_node_that_was_cut_off_comes_back_and_misses_nothing() {
    local network=switchboard-test_default
    docker network disconnect "$network" "$(container node1)"
    eventually $((threshold + heartbeat + slack)) "node2 knows" sees node2 2
    publish node2 "while node1 is away" >/dev/null
    docker exec "$(container node1)" switchboard health --live >/dev/null || fail "node1 is not alive"
    if docker exec "$(container node1)" switchboard health 2>/dev/null; then fail "node1 is ready without its database"; fi
    docker network connect --alias node1 "$network" "$(container node1)"
    all_see_each_other
    eventually 10 "node1 knows what was said" history_has node1 "while node1 is away"
}

b139_probes_restart_nobody_while_the_database_is_away() {
    local before
    before="$(pids)"
    docker stop "$(container postgres)" >/dev/null
    for node in "${nodes[@]}"; do eventually $((threshold + heartbeat + slack)) "$node is not ready" fails ready "$node"; done
    for node in "${nodes[@]}"; do
        eventually 60 "Docker knows that $node is not ready" marked "$node" unhealthy
        alive "$node" >/dev/null || fail "$node is not alive"
    done
    docker start "$(container postgres)" >/dev/null
    all_see_each_other
    [ "$(pids)" = "$before" ] || fail "nodes were restarted: $before became $(pids)"
}

b143_after_each_crash_of_postgresql_nodes_are_back_soon_and_not_later_and_later() {
    local before crash waited=() began longest=15 crashes
    before=$(restarts)
    crashes=$(inspect postgres '{{.RestartCount}}')
    for crash in 1 2 3 4; do
        # Dies without a word, and is started by Docker. What it keeps for the registry is not crash-safe.
        docker exec --user 0 "$(container postgres)" bash -c 'kill -QUIT 1'
        eventually 30 "Docker started PostgreSQL again" crashed $((crashes + crash))
        eventually 60 "PostgreSQL is back" postgres_answers
        began=$SECONDS
        eventually 60 "all nodes were started afresh after crash $crash" restarted $((before + crash * ${#nodes[@]}))
        all_see_each_other
        waited+=($((SECONDS - began)))
        [ "${waited[-1]}" -le $longest ] || fail "after crash $crash there was no cluster for ${waited[-1]} s"
    done
    # One restart for each crash: nothing restarts in vain.
    [ "$(restarts)" = $((before + 4 * ${#nodes[@]})) ] || fail "there were $(($(restarts) - before)) restarts"
    echo "        the cluster was whole again after ${waited[*]} s"
}
restarted() { [ "$(restarts)" -ge "$1" ]; }
crashed() { [ "$(inspect postgres '{{.RestartCount}}')" -ge "$1" ]; }
postgres_answers() { docker exec "$(container postgres)" pg_isready --quiet --host=127.0.0.1; }
