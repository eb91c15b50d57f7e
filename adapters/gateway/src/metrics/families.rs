//! From the tree of stats to families of samples.
//!
//! Invariants: a name has one type and one help; a sample comes once, whatever the tree holds; labels are of the few kinds that
//! [`names`](super::names) lists.

use std::collections::BTreeMap;

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use serde_json::Value;
use switchboard_core::stats::{BOUNDS, LatencySnapshot};
use switchboard_core::types::Stats;

use super::names;

type Labels = BTreeMap<&'static str, String>;

/// Samples by name and labels, both in order.
#[derive(Default)]
pub(super) struct Families {
    numbers: BTreeMap<String, BTreeMap<Labels, f64>>,
    latencies: BTreeMap<String, LatencySnapshot>,
}

impl Families {
    /// Every number and truth value of the tree. Text has no place here.
    pub(super) fn add_stats(&mut self, stats: Stats) {
        self.walk("", &Value::Object(stats.0), &Labels::new());
    }

    pub(super) fn add_latencies(&mut self, latencies: Vec<(String, LatencySnapshot)>) {
        let named = latencies.into_iter().map(|(name, seen)| (names::prefixed(&name), seen));
        self.latencies.extend(named);
    }

    pub(super) fn add<const N: usize>(
        &mut self,
        name: &str,
        labels: [(&'static str, String); N],
        value: f64,
    ) {
        self.insert(name.to_owned(), Labels::from(labels), value);
    }

    fn insert(&mut self, name: String, labels: Labels, value: f64) {
        self.numbers.entry(name).or_default().insert(labels, value);
    }

    fn walk(&mut self, path: &str, value: &Value, labels: &Labels) {
        let number = match value {
            Value::Object(members) => {
                let label = names::label_of_members(path);
                for (key, member) in members {
                    if let Some(label) = label {
                        let mut labels = labels.clone();
                        labels.insert(label, key.clone());
                        self.walk(&format!("{path}.*"), member, &labels);
                    } else if path.is_empty() {
                        self.walk(key, member, labels);
                    } else {
                        self.walk(&format!("{path}.{key}"), member, labels);
                    }
                }
                return;
            }
            Value::Number(number) => number.as_f64(),
            Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
            Value::Null | Value::String(_) | Value::Array(_) => None,
        };
        if let (Some(number), Some((name, scale))) = (number, names::of_stat(path)) {
            self.insert(name, labels.clone(), number * scale);
        }
    }

    pub(super) fn finish(self) -> Vec<MetricFamily> {
        let numbers = self.numbers.into_iter().map(|(name, samples)| {
            let kind = if name.ends_with("_total") { MetricType::COUNTER } else { MetricType::GAUGE };
            let samples = samples.into_iter().map(|(labels, value)| sample(kind, labels, value));
            family(&name, kind, samples.collect())
        });
        let latencies = self
            .latencies
            .into_iter()
            .map(|(name, seen)| family(&name, MetricType::HISTOGRAM, vec![histogram(&seen)]));
        numbers.chain(latencies).collect()
    }
}

fn family(name: &str, kind: MetricType, samples: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(names::help(name));
    family.set_field_type(kind);
    family.set_metric(samples);
    family
}

fn sample(kind: MetricType, labels: Labels, value: f64) -> Metric {
    let mut sample = Metric::default();
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        sample.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        sample.set_gauge(gauge);
    }
    let pairs = labels.into_iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    });
    sample.set_label(pairs.collect());
    sample
}

fn histogram(seen: &LatencySnapshot) -> Metric {
    let buckets = BOUNDS.iter().zip(seen.cumulative).map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(seen.count);
    histogram.set_sample_sum(seen.sum.as_secs_f64());
    let mut sample = Metric::default();
    sample.set_histogram(histogram);
    sample
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;
    use serde_json::json;

    use super::*;

    fn text(stats: Value) -> Vec<String> {
        let mut families = Families::default();
        families.add_stats(serde_json::from_value(stats).unwrap());
        let text = TextEncoder::new().encode_to_string(&families.finish()).unwrap();
        text.lines().filter(|line| !line.starts_with("# HELP")).map(str::to_owned).collect()
    }

    #[test]
    fn whatever_a_node_tells_has_a_conventional_name_and_unit() {
        let stats = json!({
            "sent_total": 3, "pool": {"idle": 1, "wait_ms": 250, "transport": "pg"}, "rtt_us": 1500, "up_sec": 7, "ok": true,
            "odd key": 1, "list": [1], "nothing": null,
        });
        assert_eq!(
            text(stats),
            [
                "# TYPE switchboard_odd_key gauge",
                "switchboard_odd_key 1",
                "# TYPE switchboard_ok gauge",
                "switchboard_ok 1",
                "# TYPE switchboard_pool_idle gauge",
                "switchboard_pool_idle 1",
                "# TYPE switchboard_pool_wait_seconds gauge",
                "switchboard_pool_wait_seconds 0.25",
                "# TYPE switchboard_rtt_seconds gauge",
                "switchboard_rtt_seconds 0.0015",
                "# TYPE switchboard_sent_total counter",
                "switchboard_sent_total 3",
                "# TYPE switchboard_up_seconds gauge",
                "switchboard_up_seconds 7",
            ]
        );
    }

    #[test]
    fn peers_are_labels_whatever_they_are_called() {
        let stats = json!({"mesh": {"unreached": 0, "peers": {
            "a/b\\c": {"ready": true, "rtt_us": 250},
            "peers": {"ready": false, "rtt_us": 500},
        }}});
        assert_eq!(
            text(stats),
            [
                "# TYPE switchboard_mesh_peer_ready gauge",
                "switchboard_mesh_peer_ready{peer=\"a/b\\\\c\"} 1",
                "switchboard_mesh_peer_ready{peer=\"peers\"} 0",
                "# TYPE switchboard_mesh_peer_rtt_seconds gauge",
                "switchboard_mesh_peer_rtt_seconds{peer=\"a/b\\\\c\"} 0.00025",
                "switchboard_mesh_peer_rtt_seconds{peer=\"peers\"} 0.0005",
                "# TYPE switchboard_mesh_unreached_peers gauge",
                "switchboard_mesh_unreached_peers 0",
            ]
        );
    }

    #[test]
    fn a_latency_is_a_histogram() {
        let stats = switchboard_core::stats::StatsRegistry::default();
        stats.latency("renewal_seconds").observe(std::time::Duration::from_millis(3));
        let mut families = Families::default();
        families.add_latencies(stats.latencies());
        let text = TextEncoder::new().encode_to_string(&families.finish()).unwrap();
        for line in [
            "# TYPE switchboard_renewal_seconds histogram",
            "switchboard_renewal_seconds_bucket{le=\"0.0025\"} 0",
            "switchboard_renewal_seconds_bucket{le=\"0.005\"} 1",
            "switchboard_renewal_seconds_bucket{le=\"+Inf\"} 1",
            "switchboard_renewal_seconds_sum 0.003",
            "switchboard_renewal_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
