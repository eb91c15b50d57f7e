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
    meta          jsonb       NOT NULL DEFAULT '{}',
    stale_after   interval    NOT NULL DEFAULT '0' -- the node's own threshold: nobody with a shorter one may sweep it earlier
) WITH (fillfactor = 50); -- room for heartbeats to be updated in place

-- The last position of each channel. Its row lock is what makes commit order and seq order the same.
CREATE TABLE "{schema}".channel_head (
    channel text COLLATE "C" PRIMARY KEY,
    epoch   bigint NOT NULL,
    seq     bigint NOT NULL
) WITH (fillfactor = 50);

-- Only the functions below write here: they check what they store. (Constraints would be read anew by every statement, which is a tenth
-- of the time that one event takes.)
--
-- The events lie in segments that take turns: publishers write to one, and retention empties the oldest as a whole. Deleting row
-- by row writes as much WAL as storing did and leaves the work to vacuum; TRUNCATE leaves nothing (see the adapter's docs).
-- (channel, seq) is unique by construction, since seq is taken under the head's lock; a constraint cannot span segments.
CREATE TABLE "{schema}".event_log (
    segment    smallint    NOT NULL,
    channel    text COLLATE "C" NOT NULL,
    seq        bigint      NOT NULL,
    epoch      bigint      NOT NULL,
    event      text        NOT NULL,
    key        text COLLATE "C", -- idempotency key
    payload    json        NOT NULL, -- json, not jsonb: byte for byte as published
    size       int         NOT NULL, -- bytes of payload, known without unpacking it
    created_at timestamptz NOT NULL,
    PRIMARY KEY (channel, seq, segment)
) PARTITION BY LIST (segment);
CREATE INDEX event_log_key ON "{schema}".event_log (channel, key) WHERE key IS NOT NULL;

CREATE TABLE "{schema}".log_segment (
    segment   smallint PRIMARY KEY,
    opened_at timestamptz -- the latest is the one that is written to; NULL: empty
);

DO $$
BEGIN
    FOR i IN 0 .. 7 LOOP
        EXECUTE format('CREATE TABLE "{schema}".event_log_%s PARTITION OF "{schema}".event_log FOR VALUES IN (%s)', i, i);
        INSERT INTO "{schema}".log_segment VALUES (i, CASE i WHEN 0 THEN clock_timestamp() END);
    END LOOP;
END
$$;

-- When retention was last seen to, so that one node at a time does it.
CREATE TABLE "{schema}".log_upkeep (done_at timestamptz NOT NULL);
INSERT INTO "{schema}".log_upkeep VALUES ('-infinity');

-- The history this server writes: its system identifier and timeline, which a failover or restore changes.
CREATE FUNCTION "{schema}".epoch() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT ('x' || left(md5(system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)), 16))::bit(64)::bigint
        FROM pg_control_system()
    );
END
$$;

-- The text form of a position, as every API shows it.
CREATE FUNCTION "{schema}".to_position(epoch bigint, seq bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.lpad(pg_catalog.to_hex(epoch), 16, '0') || '-' || seq::text
$$;

-- Whether a channel, an event or an idempotency key may be called so.
CREATE FUNCTION "{schema}".is_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.octet_length(name) BETWEEN 1 AND 255 AND name OPERATOR(pg_catalog.!~) E'[\\u0001-\\u001f\\u007f-\\u009f]'
$$;

CREATE FUNCTION "{schema}".check_name(what text, name text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF "{schema}".is_name(name) IS NOT TRUE THEN
        RAISE EXCEPTION '% %: must be 1 to 255 bytes of UTF-8 without control characters', what, coalesce(quote_literal(left(name, 64)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

CREATE FUNCTION "{schema}".check_payload(payload json, most int) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF payload IS NULL OR octet_length(payload::text) > most THEN
        RAISE EXCEPTION 'payload%: must be JSON of at most % bytes', CASE WHEN payload IS NULL THEN ' NULL' ELSE '' END, most
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

CREATE FUNCTION "{schema}".check_event(channel text, event text, payload json, key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM "{schema}".check_name('channel', channel);
    PERFORM "{schema}".check_name('event name', event);
    IF key IS NOT NULL THEN
        PERFORM "{schema}".check_name('idempotency key', key);
    END IF;
    PERFORM "{schema}".check_payload(payload, 16777216);
END
$$;

CREATE FUNCTION "{schema}".is_event(channel text, event text, payload json, key text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT "{schema}".is_name(channel) AND "{schema}".is_name(event) AND (key IS NULL OR "{schema}".is_name(key))
       AND pg_catalog.octet_length(payload::text) <= 16777216
$$;

-- One entry of the doorbell, which is 'd1 ' and a JSON array of them: [channel, "epoch-seq", event, payload, created_at in
-- microseconds], or [channel, "epoch-seq"] where the event does not fit into a notification (shorter than 8000 bytes).
-- With the longest names, every character escaped, an entry has less than 7900 bytes.
CREATE FUNCTION "{schema}".bell_entry(channel text, "position" text, event text, payload json, size int, micros bigint) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT '[' || pg_catalog.to_json(channel)::text || ',"' || "position"
           || CASE WHEN size < 6800 THEN
                  '",' || pg_catalog.to_json(event)::text || ',' || payload::text || ',' || micros::text || ']'
              ELSE '"]' END
$$;

-- Before an event is stored. A commit that a crash takes back, after its event was heard, would have its position given out twice.
CREATE FUNCTION "{schema}".insist_on_durability() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- Stores events that were checked, in the order given, rings the doorbell and answers the positions in that order.
CREATE FUNCTION "{schema}".append_events(channels text[], events text[], payloads json[], keys text[]) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    room constant int := 7985;
    here constant bigint := "{schema}".epoch();
    names text[];
    lasts bigint[];
    written timestamptz;
    micros bigint;
    positions text[];
    bells text[];
BEGIN
    PERFORM "{schema}".insist_on_durability();

    -- Heads are locked in the order of their names: no two batches can deadlock, unless they are parts of larger transactions.
    WITH counted AS (
        SELECT c, count(*) AS n FROM unnest(channels) c GROUP BY c ORDER BY c COLLATE "C"
    ), heads AS (
        INSERT INTO "{schema}".channel_head AS h (channel, epoch, seq)
        SELECT c, here, n FROM counted ORDER BY c COLLATE "C"
        ON CONFLICT (channel) DO UPDATE SET seq = h.seq + excluded.seq, epoch = excluded.epoch
        RETURNING h.channel, h.seq
    )
    SELECT array_agg(channel), array_agg(seq) INTO names, lasts FROM heads;
    written := clock_timestamp();
    micros := extract(epoch FROM written) * 1000000;

    WITH item AS MATERIALIZED (
        SELECT t.ord, t.channel, t.event, t.payload, t.key, octet_length(t.payload::text) AS size,
               h.seq + 1 - row_number() OVER (PARTITION BY t.channel ORDER BY t.ord DESC) AS seq
        FROM unnest(channels, events, payloads, keys) WITH ORDINALITY AS t(channel, event, payload, key, ord)
        JOIN unnest(names, lasts) AS h(channel, seq) USING (channel)
    ), stored AS (
        INSERT INTO "{schema}".event_log (segment, channel, seq, epoch, event, key, payload, size, created_at)
        SELECT (SELECT segment FROM "{schema}".log_segment ORDER BY opened_at DESC NULLS LAST LIMIT 1),
               channel, seq, here, event, key, payload, size, written
        FROM item
    ), entry AS MATERIALIZED (
        SELECT ord, "position", "{schema}".bell_entry(channel, "position", event, payload, size, micros) AS text
        FROM (SELECT *, "{schema}".to_position(here, seq) AS "position" FROM item) i
    ), lined_up AS (
        SELECT ord, "position", text, sum(octet_length(text) + 1) OVER (ORDER BY ord) - octet_length(text) - 1 AS start,
               max(octet_length(text) + 1) OVER () AS longest
        FROM entry
    ), bell AS (
        -- Whatever begins within a window ends at most the longest entry after it.
        SELECT min(ord) AS ord, string_agg(text, ',' ORDER BY ord) AS text
        FROM lined_up GROUP BY div(start, greatest(room - longest, 1))
    )
    SELECT (SELECT array_agg("position" ORDER BY ord) FROM lined_up), array_agg('d1 [' || text || ']' ORDER BY ord)
    INTO positions, bells FROM bell;

    -- Who sets this is heard of by catch-up, within seconds: the way to publish while NOTIFY's queue is full.
    IF current_setting('switchboard.quiet', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify('{schema}.durable', bell) FROM unnest(bells) bell;
    END IF;
    RETURN positions;
END
$$;

-- Publishes events in the order given and answers their positions in that order. Runs in the caller's transaction: nobody
-- hears of the events before its commit, and nobody ever if it rolls back. An event whose key its channel has seen, in the log or
-- earlier in the batch, is not stored again: the answer is the first one's position.
CREATE FUNCTION "{schema}".publish_batch(channels text[], events text[], payloads json[], keys text[] DEFAULT NULL)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known text[];
    leaders bigint[];
    fresh bigint[];
    positions text[];
BEGIN
    IF cardinality(events) IS DISTINCT FROM cardinality(channels) OR cardinality(payloads) IS DISTINCT FROM cardinality(channels)
       OR cardinality(keys) <> cardinality(channels) THEN
        RAISE EXCEPTION 'publish_batch: channels, events, payloads and keys (if given) must have the same number of elements'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM "{schema}".check_event(t.channel, t.event, t.payload, t.key)
    FROM unnest(channels, events, payloads, keys) AS t(channel, event, payload, key)
    WHERE "{schema}".is_event(t.channel, t.event, t.payload, t.key) IS NOT TRUE;
    IF coalesce(array_remove(keys, NULL), '{}') = '{}' THEN
        RETURN QUERY SELECT unnest("{schema}".append_events(channels, events, payloads, NULL));
        RETURN;
    END IF;

    -- Under the heads' locks nobody else can use a key of these channels.
    INSERT INTO "{schema}".channel_head (channel, epoch, seq)
    SELECT c, "{schema}".epoch(), 0 FROM unnest(channels) c GROUP BY c ORDER BY c COLLATE "C"
    ON CONFLICT DO NOTHING;
    PERFORM FROM "{schema}".channel_head h WHERE h.channel = ANY (channels) ORDER BY h.channel FOR UPDATE;

    SELECT array_agg(i.known ORDER BY i.ord), array_agg(i.leader ORDER BY i.ord),
           array_agg(i.ord ORDER BY i.ord) FILTER (WHERE i.known IS NULL AND i.leader = i.ord)
    INTO known, leaders, fresh
    FROM (
        SELECT t.ord,
               (SELECT "{schema}".to_position(l.epoch, l.seq) FROM "{schema}".event_log l
                WHERE l.channel = t.channel AND l.key = t.key) AS known,
               CASE WHEN t.key IS NULL THEN t.ord ELSE min(t.ord) OVER (PARTITION BY t.channel, t.key) END AS leader
        FROM unnest(channels, events, payloads, keys) WITH ORDINALITY AS t(channel, event, payload, key, ord)
    ) i;
    IF fresh IS NOT NULL THEN
        SELECT "{schema}".append_events(array_agg(t.channel ORDER BY t.ord), array_agg(t.event ORDER BY t.ord),
                                        array_agg(t.payload ORDER BY t.ord), array_agg(t.key ORDER BY t.ord))
        INTO positions
        FROM unnest(channels, events, payloads, keys) WITH ORDINALITY AS t(channel, event, payload, key, ord)
        WHERE t.ord = ANY (fresh);
    END IF;
    RETURN QUERY
    SELECT coalesce(known[i], positions[array_position(fresh, leaders[i])]) FROM generate_subscripts(leaders, 1) i ORDER BY i;
END
$$;

-- Publishes one event and answers its position: publish_batch for one, in a third of the time.
CREATE FUNCTION "{schema}".publish(channel text, event text, payload json, key text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    here constant bigint := "{schema}".epoch();
    size constant int := octet_length(payload::text);
    last bigint;
    answer text;
    written timestamptz;
BEGIN
    IF "{schema}".is_event(publish.channel, publish.event, publish.payload, publish.key) IS NOT TRUE THEN
        PERFORM "{schema}".check_event(publish.channel, publish.event, publish.payload, publish.key);
    END IF;
    IF publish.key IS NOT NULL THEN
        -- Under the head's lock nobody else can use a key of this channel.
        INSERT INTO "{schema}".channel_head VALUES (publish.channel, here, 0) ON CONFLICT DO NOTHING;
        PERFORM FROM "{schema}".channel_head h WHERE h.channel = publish.channel FOR UPDATE;
        SELECT "{schema}".to_position(l.epoch, l.seq) INTO answer
        FROM "{schema}".event_log l WHERE l.channel = publish.channel AND l.key = publish.key;
        IF FOUND THEN
            RETURN answer;
        END IF;
    END IF;

    PERFORM "{schema}".insist_on_durability();
    INSERT INTO "{schema}".channel_head AS h (channel, epoch, seq) VALUES (publish.channel, here, 1)
    ON CONFLICT (channel) DO UPDATE SET seq = h.seq + 1, epoch = excluded.epoch
    RETURNING h.seq INTO last;
    answer := "{schema}".to_position(here, last);
    written := clock_timestamp();
    INSERT INTO "{schema}".event_log (segment, channel, seq, epoch, event, key, payload, size, created_at)
    VALUES ((SELECT s.segment FROM "{schema}".log_segment s ORDER BY s.opened_at DESC NULLS LAST LIMIT 1),
            publish.channel, last, here, publish.event, publish.key, publish.payload, size, written);
    IF current_setting('switchboard.quiet', true) IS DISTINCT FROM 'on' THEN
        PERFORM pg_notify('{schema}.durable', 'd1 [' || "{schema}".bell_entry(
            publish.channel, answer, publish.event, publish.payload, size, (extract(epoch FROM written) * 1000000)::bigint) || ']');
    END IF;
    RETURN answer;
END
$$;

-- The last position of a channel. Read it before state (or in one REPEATABLE READ transaction with it) and subscribe after it:
-- whatever changes later is an event of the subscription.
CREATE FUNCTION "{schema}".head(channel text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT "{schema}".to_position(coalesce(h.epoch, "{schema}".epoch()), coalesce(h.seq, 0))
    FROM (SELECT) one LEFT JOIN "{schema}".channel_head h ON h.channel = $1
$$;

-- Empties the segments that hold nothing younger than `keep`, and begins a new one when the current has been written to for a
-- sixth of it. Answers how many were emptied and how many could not be, because a transaction holds on to them: it waits for none,
-- since everybody who reads the log would wait behind it.
CREATE FUNCTION "{schema}".rotate_log(keep interval, OUT emptied int, OUT busy int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
    due smallint;
BEGIN
    emptied := 0;
    busy := 0;
    FOR due IN
        SELECT segment FROM (
            SELECT segment, lead(opened_at) OVER (ORDER BY opened_at) AS closed_at
            FROM "{schema}".log_segment WHERE opened_at IS NOT NULL
        ) s WHERE closed_at <= clock_timestamp() - keep
    LOOP
        BEGIN
            EXECUTE format('TRUNCATE "{schema}".event_log_%s', due);
            UPDATE "{schema}".log_segment SET opened_at = NULL WHERE segment = due;
            emptied := emptied + 1;
        EXCEPTION WHEN lock_not_available THEN
            busy := busy + 1;
        END;
    END LOOP;
    IF (SELECT max(opened_at) FROM "{schema}".log_segment) <= clock_timestamp() - keep / 6 THEN
        UPDATE "{schema}".log_segment SET opened_at = clock_timestamp()
        WHERE segment = (SELECT min(segment) FROM "{schema}".log_segment WHERE opened_at IS NULL);
    END IF;
END
$$;

-- Sends one ephemeral event to the subscribers of every node; never stored. For callers without a node.
--
-- The notification is 'e1 ORIGIN NUMBER [[channel, event, payload], …]'; an event that does not fit travels in parts,
-- 'p1 ORIGIN NUMBER INDEX COUNT TEXT', that together are [channel, event, payload].
CREATE FUNCTION "{schema}".publish_ephemeral(channel text, event text, payload json) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    room constant int := 1900; -- characters: at most four bytes each
    origin constant text := 'sql-' || pg_backend_pid();
    number constant text := to_hex((random() * 9007199254740991)::bigint);
    entry text;
    parts int;
BEGIN
    PERFORM "{schema}".check_name('channel', channel);
    PERFORM "{schema}".check_name('event name', event);
    PERFORM "{schema}".check_payload(payload, 65536);
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
