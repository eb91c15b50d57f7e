#!/bin/sh
# The mesh beside NATS core, in one run on one machine. Options: --rounds, --seconds, --peers, --nats-subscribers, --only; see --help.
cd "$(dirname "$0")/../.." && exec cargo bench -p switchboard-benches --bench mesh -- "$@"
