# Makes a cluster of databases if there is none, and becomes the server.
set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    chown postgres: "$data"
    exec setpriv --reuid=postgres --regid=postgres --init-groups bash "$0"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    initdb --pgdata="$data" --username="$POSTGRES_USER" --auth-host=scram-sha-256 --pwfile=<(echo "$POSTGRES_PASSWORD") >/dev/null
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    postgres --single -D "$data" postgres <<<"CREATE DATABASE \"${POSTGRES_DB:-$POSTGRES_USER}\"" >/dev/null
fi
exec postgres -D "$data" -c "listen_addresses=*"
