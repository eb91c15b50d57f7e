# Makes a cluster of databases if there is none, and becomes the server.
set -eu
data=/var/lib/postgresql/data
chown postgres: "$data"
as=(setpriv --reuid=postgres --regid=postgres --init-groups)
if [ ! -s "$data/PG_VERSION" ]; then
    "${as[@]}" initdb --pgdata="$data" --username="$POSTGRES_USER" --auth-host=scram-sha-256 --pwfile=<(echo "$POSTGRES_PASSWORD") >/dev/null
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    "${as[@]}" postgres --single -D "$data" postgres <<<"CREATE DATABASE \"${POSTGRES_DB:-$POSTGRES_USER}\"" >/dev/null
fi
exec "${as[@]}" postgres -D "$data" -c "listen_addresses=*"
