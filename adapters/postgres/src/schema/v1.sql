-- Version 1: registry, event log, heads, and the functions other languages call.

-- Who is in the cluster. UNLOGGED: a heartbeat costs no WAL, and after a crash of PostgreSQL an empty table is the truth.
CREATE UNLOGGED TABLE "{schema}".node_registry (
    node_id       text        PRIMARY KEY,
    endpoint      text        NOT NULL,
    seq           bigserial   NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    heartbeat     timestamptz NOT NULL DEFAULT now(),
    stats         jsonb       NOT NULL DEFAULT '{}',
    incarnation   uuid        NOT NULL DEFAULT gen_random_uuid(),
    meta          jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50); -- room for heartbeats to be updated in place

-- The last position of each channel. Its row lock is what makes commit order and seq order the same.
CREATE TABLE "{schema}".channel_head (
    channel text COLLATE "C" PRIMARY KEY
            CHECK (octet_length(channel) BETWEEN 1 AND 255 AND channel !~ E'[\\u0001-\\u001f\\u007f-\\u009f]'),
    epoch   bigint NOT NULL,
    seq     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE "{schema}".event_log (
    channel    text COLLATE "C" NOT NULL,
    seq        bigint      NOT NULL,
    epoch      bigint      NOT NULL,
    event      text        NOT NULL
               CHECK (octet_length(event) BETWEEN 1 AND 255 AND event !~ E'[\\u0001-\\u001f\\u007f-\\u009f]'),
    payload    json        NOT NULL, -- json, not jsonb: byte for byte as published
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (channel, seq)
);

-- The history this server writes: its system identifier and timeline, which a failover or restore changes.
CREATE FUNCTION "{schema}".epoch() RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT ('x' || left(md5(system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)), 16))::bit(64)::bigint
    FROM pg_control_system()
$$;

CREATE FUNCTION "{schema}".check_name(what text, name text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 255 OR name ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
        RAISE EXCEPTION '% %: must be 1 to 255 bytes of UTF-8 without control characters', what, coalesce(quote_literal(left(name, 64)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Stores events in the order given and rings the doorbell. Runs in the caller's transaction: nobody hears of the events
-- before its commit, and nobody ever if it rolls back. Answers one row per event, in the order given.
--
-- The doorbell is 'd1 ' and a JSON array of [channel, "epoch-seq", event, payload, created_at in microseconds], or of
-- [channel, "epoch-seq"] where the event does not fit into a notification (shorter than 8000 bytes).
CREATE FUNCTION "{schema}".publish_batch(channels text[], events text[], payloads json[])
RETURNS TABLE (channel text, epoch bigint, seq bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    room constant int := 7990;
    item record;
    entry text;
    bell text := '';
    size int := 0;
BEGIN
    FOR item IN
        WITH input AS (
            SELECT t.ord, t.channel, t.event, t.payload,
                   row_number() OVER (PARTITION BY t.channel ORDER BY t.ord) AS nth
            FROM unnest(channels, events, payloads) WITH ORDINALITY AS t(channel, event, payload, ord)
        ), counted AS (
            -- Heads are locked in the order of their names, by every publisher: no two batches can deadlock.
            SELECT i.channel, count(*) AS n FROM input i GROUP BY i.channel ORDER BY i.channel COLLATE "C"
        ), here AS MATERIALIZED (
            SELECT "{schema}".epoch() AS epoch
        ), heads AS (
            INSERT INTO "{schema}".channel_head AS h (channel, epoch, seq)
            SELECT c.channel, here.epoch, c.n FROM counted c, here ORDER BY c.channel COLLATE "C"
            ON CONFLICT (channel) DO UPDATE SET seq = h.seq + excluded.seq, epoch = excluded.epoch
            RETURNING h.channel, h.epoch, h.seq
        ), stored AS (
            INSERT INTO "{schema}".event_log AS l (channel, seq, epoch, event, payload)
            SELECT i.channel, h.seq - c.n + i.nth, h.epoch, i.event, i.payload
            FROM input i JOIN heads h USING (channel) JOIN counted c USING (channel)
            RETURNING l.channel, l.seq, l.epoch, l.created_at
        )
        SELECT i.channel, i.event, i.payload, s.epoch, s.seq,
               (extract(epoch FROM s.created_at) * 1000000)::bigint AS micros
        FROM input i
        JOIN heads h USING (channel)
        JOIN counted c USING (channel)
        JOIN stored s ON s.channel = i.channel AND s.seq = h.seq - c.n + i.nth
        ORDER BY i.ord
    LOOP
        channel := item.channel;
        epoch := item.epoch;
        seq := item.seq;
        RETURN NEXT;

        entry := to_json(item.channel)::text || ',"' || lpad(to_hex(item.epoch), 16, '0') || '-' || item.seq || '"';
        IF octet_length(item.payload::text) < room - 2000 THEN
            entry := entry || ',' || to_json(item.event)::text || ',' || item.payload::text || ',' || item.micros;
            IF octet_length(entry) + 3 > room THEN
                entry := to_json(item.channel)::text || ',"' || lpad(to_hex(item.epoch), 16, '0') || '-' || item.seq || '"';
            END IF;
        END IF;
        IF size > 0 AND size + octet_length(entry) + 3 > room THEN
            PERFORM pg_notify('{schema}.durable', 'd1 [' || bell || ']');
            bell := '';
            size := 0;
        END IF;
        bell := bell || CASE WHEN size > 0 THEN ',[' ELSE '[' END || entry || ']';
        size := size + octet_length(entry) + 3;
    END LOOP;
    IF size > 0 THEN
        PERFORM pg_notify('{schema}.durable', 'd1 [' || bell || ']');
    END IF;
END
$$;

-- Sends one ephemeral event to the subscribers of every node; never stored. For callers without a node.
--
-- The notification is 'e1 ORIGIN NUMBER [[channel, event, payload], …]'; an event that does not fit travels in parts,
-- 'p1 ORIGIN NUMBER INDEX COUNT TEXT', that together are [channel, event, payload].
CREATE FUNCTION "{schema}".publish_ephemeral(channel text, event text, payload json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    room constant int := 1900; -- characters: at most four bytes each
    origin constant text := 'sql-' || pg_backend_pid();
    number constant text := to_hex((random() * 9007199254740991)::bigint);
    entry text;
    parts int;
BEGIN
    PERFORM "{schema}".check_name('channel', channel);
    PERFORM "{schema}".check_name('event name', event);
    IF payload IS NULL OR octet_length(payload::text) > 65536 THEN
        RAISE EXCEPTION 'payload: must be JSON of at most 65536 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    entry := '[' || to_json(channel)::text || ',' || to_json(event)::text || ',' || payload::text || ']';
    IF octet_length(entry) < 7900 THEN
        PERFORM pg_notify('{schema}.ephemeral', 'e1 ' || origin || ' ' || number || ' [' || entry || ']');
        RETURN;
    END IF;
    parts := (char_length(entry) + room - 1) / room;
    FOR i IN 0 .. parts - 1 LOOP
        PERFORM pg_notify('{schema}.ephemeral',
            'p1 ' || origin || ' ' || number || ' ' || i || ' ' || parts || ' ' || substr(entry, i * room + 1, room));
    END LOOP;
END
$$;
