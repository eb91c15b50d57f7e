//! Finds environment variables that are meant to be settings and are none. Nobody reads them, so they deserve a warning.

use std::ffi::OsString;

use clap::Args;

use super::ServeArgs;

/// Settings with these prefixes are ours; `DATABASE_URL`, `HTTP_PROXY` and the like are read by other programs, too.
const OURS: [&str; 6] = ["AUTH_", "CLUSTER_", "DURABLE_", "MESH_", "METRICS_", "WS_"];

/// How similar a name must be to one that is known for the one to be meant (1 is equal): missing words and slips of the finger.
const SIMILAR: f64 = 0.75;

/// A warning for each. What resembles no setting is somebody else's: a Kubernetes service named `cluster` injects `CLUSTER_PORT` and the like.
pub(crate) fn find(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known = known();
    let is_ours = |name: &String| OURS.iter().any(|prefix| name.starts_with(prefix));
    let mut unknown: Vec<_> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| is_ours(name) && !known.contains(name))
        .collect();
    unknown.sort();
    let warnings = unknown.iter().filter_map(|name| {
        let meant = nearest(name, &known)?;
        Some(format!("the environment variable {name} is not known and has no effect; did you mean {meant}?"))
    });
    warnings.collect()
}

/// Every variable that a node reads.
fn known() -> Vec<String> {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    command.get_arguments().filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned)).collect()
}

fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let (prefix, rest) = name.split_once('_')?;
    let similarity = |known: &str| match known.split_once('_') {
        Some((same, known)) if same == prefix => strsim::jaro(rest, known),
        _ => 0.0,
    };
    let candidates = known.iter().map(|known| (similarity(known), known));
    let (similarity, nearest) = candidates.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity >= SIMILAR).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_reads_is_found_with_what_was_probably_meant() {
        for (name, meant) in [
            ("CLUSTER_HEARTBEAT_INTERVALL", "CLUSTER_HEARTBEAT_INTERVAL"),
            ("CLUSTER_DRAIN", "CLUSTER_DRAIN_TIMEOUT"),
            ("CLUSTER_HEARTBEAT", "CLUSTER_HEARTBEAT_INTERVAL"),
            ("CLUSTER_STALE_TRESHOLD", "CLUSTER_STALE_THRESHOLD"),
            ("CLUSTER_NODEID", "CLUSTER_NODE_ID"),
            ("DURABLE_MAXBYTES", "DURABLE_MAX_BYTES"),
            ("AUTH_JWT_SECRETS", "AUTH_JWT_SECRET"),
            ("WS_MESSAGES_RATE", "WS_MESSAGE_RATE"),
        ] {
            let warning = format!(
                "the environment variable {name} is not known and has no effect; did you mean {meant}?"
            );
            assert_eq!(find([name.into()].into_iter()), [warning]);
        }
    }

    #[test]
    fn settings_and_variables_of_others_are_left_alone() {
        let names = [
            "CLUSTER_SCHEMA",
            "CLUSTER_PORT_4000_TCP",
            "CLUSTER_SERVICE_HOST",
            "CLUSTER_",
            "DURABLE_SCHEMA",
            "DATABASE_URI",
            "HTTP_PROXY",
            "PATH",
        ];
        assert_eq!(find(names.map(OsString::from).into_iter()), [""; 0]);
    }
}
