// What a node's heartbeat says about it, by the thresholds that come with the list. Pure.

// A list is read a moment after the heartbeats in it were due: share of an interval.
const SLACK = 0.25;

// The age is the server's, by PostgreSQL's clock: no clock of a browser has a part in it.
export function judge({ heartbeat_age_ms: age, stats }, { heartbeat_interval_ms: interval, stale_threshold_ms: threshold }) {
  if (age >= threshold) return "stale";
  if (age > interval * (2 + SLACK)) return "suspect";
  return stats?.draining === true ? "draining" : "healthy";
}

// In milliseconds. As the process tells, or else since it is in the list; both ends of that are PostgreSQL's.
export function uptime({ registered_at, heartbeat, heartbeat_age_ms: age, stats }) {
  const told = stats?.uptime_sec;
  return (Number.isFinite(told) ? told * 1000 : Date.parse(heartbeat) - Date.parse(registered_at)) + age;
}
