#!/usr/bin/env bash
# Runs deploy/docker-compose.yml as a user would, and does to it what happens to clusters.
#
#   tests/compose.sh [STORY…]
#
# Uses the Docker daemon that is running, or starts one of its own if it is root; says so and ends with 0 if there is none to be had.
# What a private daemon builds is kept in COMPOSE_CACHE if that is set, so that the next run is quicker.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${COMPOSE_CACHE:-$(mktemp -d /var/tmp/switchboard-compose.XXXXXX)}
mkdir -p "$work"
. tests/compose/daemon.sh
. tests/compose/images.sh
. tests/compose/stories.sh

export NODE1_PORT=${NODE1_PORT:-4710} NODE2_PORT=${NODE2_PORT:-4711} NODE3_PORT=${NODE3_PORT:-4712}
export ADMIN_TOKEN=${ADMIN_TOKEN:-a-token-for-tests}
compose=() daemon='' tail=''
cluster() { "${compose[@]}" --project-name switchboard-test --file deploy/docker-compose.yml --file tests/compose/override.yml "$@"; }

clean_up() {
    local code=$?
    [ -z "$tail" ] || kill "$tail" 2>/dev/null || true
    if [ ${#compose[@]} -gt 0 ]; then
        [ $code = 0 ] || cluster logs --no-color --tail 30 >&2 || true
        cluster down --volumes --timeout 5 >/dev/null 2>&1 || true
    fi
    stop_daemon
    [ -n "${COMPOSE_CACHE:-}" ] || rm -rf "$work"
    exit $code
}

if ! choose_clients || ! start_daemon; then
    echo "skipped: there is no Docker daemon, and none can be started"
    exit 0
fi
trap clean_up EXIT

say() { printf '%4s s  %s\n' "$SECONDS" "$*"; }
have_images
say "base images are there"
cluster up --build --detach >"$work/up.log" 2>&1 || { tail -n 60 "$work/up.log" >&2; exit 1; }
find_containers
say "the cluster is up"
[ $# -gt 0 ] || set -- "${stories[@]}"
for story in "$@"; do
    "$story"
    say "$story"
done
echo "all stories of compose hold"
