//! Finds environment variables that look like misspelt settings. Nobody reads them, so they deserve a warning.

use std::ffi::OsString;

/// Every variable that is read under the prefix that is ours alone.
pub(crate) const KNOWN: [&str; 8] = [
    "CLUSTER_SCHEMA",
    "CLUSTER_NODE_ID",
    "CLUSTER_ENDPOINT",
    "CLUSTER_HEARTBEAT_INTERVAL",
    "CLUSTER_STALE_THRESHOLD",
    "CLUSTER_ON_EVICTION",
    "CLUSTER_DRAIN_TIMEOUT",
    "CLUSTER_EPHEMERAL",
];

/// How many slips of the finger make a typo; beyond it is somebody else's variable (a Kubernetes service named
/// `cluster` injects `CLUSTER_PORT` and the like).
const TYPO: usize = 3;

/// Pairs of a variable that is set and the setting that was probably meant.
pub(crate) fn find(names: impl Iterator<Item = OsString>) -> Vec<(String, &'static str)> {
    let unknown = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("CLUSTER_") && !KNOWN.contains(&name.as_str()));
    let mut typos: Vec<_> = unknown.filter_map(|name| nearest(&name).map(|meant| (name, meant))).collect();
    typos.sort();
    typos
}

fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    KNOWN.into_iter().min_by_key(|known| distance(known)).filter(|known| distance(known) <= TYPO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_setting_is_found_and_a_strange_one_is_left_alone() {
        let names = [
            "CLUSTER_HEARTBEAT_INTERVALL",
            "CLUSTER_STALE_TRESHOLD",
            "CLUSTER_NODEID",
            "CLUSTER_SCHEMA",
            "CLUSTER_PORT_4000_TCP",
            "CLUSTER_SERVICE_HOST",
            "PATH",
        ];
        assert_eq!(
            find(names.into_iter().map(OsString::from)),
            [
                ("CLUSTER_HEARTBEAT_INTERVALL".to_owned(), "CLUSTER_HEARTBEAT_INTERVAL"),
                ("CLUSTER_NODEID".to_owned(), "CLUSTER_NODE_ID"),
                ("CLUSTER_STALE_TRESHOLD".to_owned(), "CLUSTER_STALE_THRESHOLD"),
            ]
        );
    }
}
