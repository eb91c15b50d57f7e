//! What metrics are called, and what they mean.
//!
//! A gauge of `stats` that is listed in [`STATS`] has the name there. Any other is named by rule: `switchboard_`, its path, and the base unit
//! in place of `_ms`, `_us` or `_sec`; so what an embedding service adds shows up by itself.

/// The objects of `stats` whose keys are names of things, and what the label for those is called. Each kind of thing is few.
const LABELS: [(&str, &str); 1] = [("mesh.peers", "peer")];

/// The gauge that is left out: percent since anybody looked last, which two scrapers would take from each other.
const LEFT_OUT: &str = "cpu";

/// Path in `stats`, name, help.
const STATS: &[(&str, &str, &str)] = &[
    // The process, under the names that every Prometheus client library uses.
    ("cpu_seconds_total", "process_cpu_seconds_total", "CPU time of the process, user and system."),
    ("rss_bytes", "process_resident_memory_bytes", "Resident memory of the process."),
    ("uptime_sec", "switchboard_uptime_seconds", "Time since the process began."),
    ("heap_allocated_bytes", "switchboard_heap_allocated_bytes", "Heap that is asked for."),
    ("heap_resident_bytes", "switchboard_heap_resident_bytes", "Heap that is held from the system for it."),
    (
        "scheduling_lag_ms",
        "switchboard_scheduling_lag_seconds",
        "By how much timers fired late: the worst of the last ten seconds.",
    ),
    (
        "tokio_busy_ratio",
        "switchboard_runtime_busy_ratio",
        "Share of time that the runtime's workers are busy, 0 to 1.",
    ),
    ("tokio_queue_depth", "switchboard_runtime_queue_depth", "Tasks that are due and wait for a worker."),
    ("tokio_tasks", "switchboard_runtime_tasks", "Tasks that are alive."),
    // Membership.
    ("renewals_failed_total", "switchboard_renewals_failed_total", "Heartbeats that did not get through."),
    ("swept_total", "switchboard_swept_total", "Stale peers that this node removed from the registry."),
    // HTTP.
    ("http_requests_total", "switchboard_http_requests_total", "HTTP requests, answered in whatever way."),
    (
        "http_rejected_total",
        "switchboard_http_rejected_total",
        "HTTP requests answered with a status from 400 to 499.",
    ),
    (
        "http_published_durable_total",
        "switchboard_http_published_durable_total",
        "Durable events published over HTTP or a socket of this node.",
    ),
    (
        "http_published_ephemeral_total",
        "switchboard_http_published_ephemeral_total",
        "Ephemeral events published over HTTP or a socket of this node.",
    ),
    ("sse_clients", "switchboard_sse_clients", "Clients that listen over Server-Sent Events."),
    ("ws_clients", "switchboard_ws_clients", "Clients that are connected over a WebSocket."),
    ("ws_received_total", "switchboard_ws_received_total", "Messages from sockets."),
    ("ws_sent_total", "switchboard_ws_sent_total", "Messages to sockets."),
    (
        "ws_dropped_total",
        "switchboard_ws_dropped_total",
        "Ephemeral events that were dropped because a socket was too slow for them.",
    ),
    (
        "ws_closed_slow_total",
        "switchboard_ws_closed_slow_total",
        "Sockets that were closed because they took nothing for the time limit.",
    ),
    // Presence.
    (
        "presence_entries",
        "switchboard_presence_entries",
        "Entries of presence that this node knows, of all nodes.",
    ),
    (
        "presence_own_entries",
        "switchboard_presence_own_entries",
        "Entries of presence of this node's own clients.",
    ),
    (
        "presence_suspect_entries",
        "switchboard_presence_suspect_entries",
        "Mesh: entries of presence of nodes whose link is lost.",
    ),
    (
        "presence_diffs_total",
        "switchboard_presence_diffs_total",
        "Changes of presence told to this node's clients.",
    ),
    (
        "presence_syncs_total",
        "switchboard_presence_syncs_total",
        "Times that this node asked a peer for all of its presence.",
    ),
    (
        "presence_answers_total",
        "switchboard_presence_answers_total",
        "Times that this node told a peer all of its presence.",
    ),
    (
        "presence_garbage_total",
        "switchboard_presence_garbage_total",
        "Messages about presence that no node of this version wrote.",
    ),
    // Durable events.
    (
        "durable.published_total",
        "switchboard_durable_published_total",
        "Durable events that this node committed.",
    ),
    (
        "durable.subscribers",
        "switchboard_durable_subscribers",
        "Subscriptions to durable events of one channel each.",
    ),
    (
        "durable.log_reads_total",
        "switchboard_durable_log_reads_total",
        "Statements that read pages of the event log.",
    ),
    ("durable.pruned_total", "switchboard_durable_pruned_total", "Events that this node pruned one by one."),
    (
        "durable.segments_emptied_total",
        "switchboard_durable_segments_emptied_total",
        "Segments of the event log that this node emptied.",
    ),
    (
        "durable.foreign_notifications_total",
        "switchboard_durable_foreign_notifications_total",
        "Notifications on the channel for durable events that no node wrote.",
    ),
    // Ephemeral events.
    (
        "ephemeral.published_total",
        "switchboard_ephemeral_published_total",
        "Ephemeral events that this node took to publish.",
    ),
    (
        "ephemeral.received_total",
        "switchboard_ephemeral_received_total",
        "Ephemeral events that came from the cluster.",
    ),
    (
        "ephemeral.dropped_total",
        "switchboard_ephemeral_dropped_total",
        "Ephemeral events that were dropped on their way out, because a queue was full or its peer gone.",
    ),
    (
        "ephemeral.lagged_total",
        "switchboard_ephemeral_lagged_total",
        "Ephemeral events that subscribers of this node were too slow for.",
    ),
    (
        "ephemeral.backlog",
        "switchboard_ephemeral_backlog_events",
        "NOTIFY: ephemeral events that wait to be sent.",
    ),
    (
        "ephemeral.backlog_bytes",
        "switchboard_ephemeral_backlog_bytes",
        "Mesh: ephemeral events that wait to be sent, over all peers.",
    ),
    (
        "ephemeral.subscribers",
        "switchboard_ephemeral_subscribers",
        "Subscriptions to ephemeral events of one channel each.",
    ),
    (
        "ephemeral.foreign_notifications_total",
        "switchboard_ephemeral_foreign_notifications_total",
        "NOTIFY: notifications on the channel for ephemeral events that no node wrote.",
    ),
    (
        "ephemeral.late_total",
        "switchboard_ephemeral_late_total",
        "Mesh: events that later ones of their peer had overtaken on another way, and that were dropped.",
    ),
    (
        "ephemeral.fallback_sent_total",
        "switchboard_ephemeral_fallback_sent_total",
        "Mesh: events that went over NOTIFY, because a peer had no link.",
    ),
    (
        "ephemeral.fallback_received_total",
        "switchboard_ephemeral_fallback_received_total",
        "Mesh: events that came over NOTIFY.",
    ),
    (
        "ephemeral.foreign_total",
        "switchboard_ephemeral_foreign_total",
        "Mesh: messages that no node of this version wrote.",
    ),
    // The mesh.
    (
        "mesh.unreached",
        "switchboard_mesh_unreached_peers",
        "Mesh: peers with a mesh that have no link to this node.",
    ),
    ("mesh.without_mesh", "switchboard_mesh_peers_without_mesh", "Mesh: peers that have none."),
    ("mesh.peers.*.ready", "switchboard_mesh_peer_ready", "Mesh: 1 if events go to the peer over its link."),
    ("mesh.peers.*.rtt_us", "switchboard_mesh_peer_rtt_seconds", "Mesh: round-trip time to the peer."),
    (
        "mesh.peers.*.sent_total",
        "switchboard_mesh_peer_sent_total",
        "Mesh: events sent over the peer's current link.",
    ),
    (
        "mesh.peers.*.received_total",
        "switchboard_mesh_peer_received_total",
        "Mesh: events received over the peer's current link.",
    ),
    (
        "mesh.peers.*.dropped_total",
        "switchboard_mesh_peer_dropped_total",
        "Mesh: events dropped because the queue of the peer's current link was full.",
    ),
    ("mesh.peers.*.queue_bytes", "switchboard_mesh_peer_queue_bytes", "Mesh: events that wait for the peer."),
    (
        "mesh.peers.*.lost_packets_total",
        "switchboard_mesh_peer_lost_packets_total",
        "Mesh: packets lost on the peer's current link.",
    ),
    ("mesh.peers.*.mtu", "switchboard_mesh_peer_mtu_bytes", "Mesh: largest packet that passes to the peer."),
    // PostgreSQL.
    (
        "postgres.pool_in_use",
        "switchboard_postgres_pool_in_use",
        "Pooled connections to PostgreSQL that are in use.",
    ),
    (
        "postgres.pool_idle",
        "switchboard_postgres_pool_idle",
        "Pooled connections to PostgreSQL that are idle.",
    ),
    ("postgres.notifications_total", "switchboard_postgres_notifications_total", "Notifications received."),
    (
        "postgres.listener_sessions_total",
        "switchboard_postgres_listener_sessions_total",
        "LISTEN sessions begun; more than one means that one was lost.",
    ),
    (
        "postgres.notify_queue_usage",
        "switchboard_postgres_notify_queue_ratio",
        "Share of the server's NOTIFY queue that is in use, 0 to 1.",
    ),
];

/// Name and help of what is not in `stats`.
const OTHERS: &[(&str, &str)] = &[
    ("switchboard_node_info", "Always 1; says which node this is and its version."),
    ("switchboard_ready", "1 if /readyz says that this node should get work."),
    ("switchboard_cluster_size", "Nodes of the cluster as this one sees it, itself among them."),
    ("switchboard_heartbeat_age_seconds", "Time since the last heartbeat that got through."),
    ("switchboard_check_state", "What a check of /health finds: 0 is good, 1 degraded, 2 failed."),
    (
        "switchboard_renewal_seconds",
        "Time from sending a heartbeat to its answer, of those that got through.",
    ),
    (
        "switchboard_durable_publish_seconds",
        "Time from publishing a durable event to its commit, of those that were committed.",
    ),
];

/// What the keys of this object are called as a label, if they are no names of gauges.
pub(super) fn label_of_members(path: &str) -> Option<&'static str> {
    LABELS.iter().find(|(keyed, _)| *keyed == path).map(|(_, label)| *label)
}

/// The name for a gauge of `stats`, and what its number is multiplied by to be in the base unit. `None` if it is left out.
pub(super) fn of_stat(path: &str) -> Option<(String, f64)> {
    let scale = match path {
        LEFT_OUT => return None,
        _ if path.ends_with("_ms") => 1e-3,
        _ if path.ends_with("_us") => 1e-6,
        _ => 1.0,
    };
    let listed = STATS.iter().find(|(stat, ..)| *stat == path).map(|(_, name, _)| (*name).to_owned());
    Some((listed.unwrap_or_else(|| by_rule(path)), scale))
}

pub(super) fn prefixed(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    format!("switchboard_{}", name.chars().map(legal).collect::<String>())
}

pub(super) fn help(name: &str) -> String {
    let listed = STATS.iter().map(|(_, name, help)| (*name, *help)).chain(OTHERS.iter().copied());
    let found = listed.into_iter().find(|(listed, _)| *listed == name);
    found.map_or("Added to this node's stats.", |(_, help)| help).to_owned()
}

fn by_rule(path: &str) -> String {
    let path = path.replace(".*", "");
    let base = ["_ms", "_us", "_sec"].iter().find_map(|unit| path.strip_suffix(unit));
    prefixed(&base.map_or_else(|| path.clone(), |base| format!("{base}_seconds")))
}
