# Finds a Docker daemon, or starts a private one below a directory, and chooses clients that fit it. To be sourced.
#
# Invariant: a private daemon leaves nothing behind, neither files nor rules of the packet filter.

# Puts a client that can build with BuildKit first in PATH, and sets `compose`.
choose_clients() {
    local candidate version
    mkdir -p "$work/bin"
    for candidate in $(type -ap docker); do
        version=$("$candidate" version --format '{{.Client.Version}}' 2>/dev/null || "$candidate" --version | grep -o '[0-9][0-9.]*' | head -n 1)
        # From 23 on it is a plug-in, which distributions package apart.
        if "$candidate" buildx version >/dev/null 2>&1 || [ "${version%%.*}" -lt 23 ]; then
            ln -sf "$candidate" "$work/bin/docker"
            break
        fi
    done
    export PATH=$work/bin:$PATH DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1
    [ -x "$work/bin/docker" ] || return 1
    if docker compose version >/dev/null 2>&1; then
        compose=(docker compose)
    elif command -v docker-compose >/dev/null; then
        compose=(docker-compose)
    else
        return 1
    fi
}

# Answers whether there is a daemon now. `daemon` is its process if it is ours.
start_daemon() {
    daemon=
    docker info >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && command -v dockerd iptables >/dev/null || return 1
    export DOCKER_HOST=unix://$work/docker.sock
    forward=$(iptables -S FORWARD | head -n 1)
    echo '{}' >"$work/daemon.json"
    # No bridge of its own: builds use the network of the machine, and the cluster makes one.
    dockerd --host "$DOCKER_HOST" --data-root "$work/data" --exec-root "$work/run" --pidfile "$work/pid" \
        --config-file "$work/daemon.json" --bridge none >"$work/dockerd.log" 2>&1 &
    daemon=$!
    for _ in $(seq 150); do
        docker info >/dev/null 2>&1 && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 5 "$work/dockerd.log" >&2
    stop_daemon
    return 1
}

stop_daemon() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    local rule table
    # shellcheck disable=SC2086 # a policy is several words
    iptables $forward
    for table in filter nat; do
        iptables -t $table -S | grep -E '^-A .*DOCKER' | sed 's/^-A/-D/' | while read -r rule; do
            # shellcheck disable=SC2086
            iptables -t $table $rule
        done
        for rule in $(iptables -t $table -S | sed -n 's/^-N \(DOCKER.*\)/\1/p'); do
            iptables -t $table -X "$rule"
        done
    done
}
