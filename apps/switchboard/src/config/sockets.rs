//! The settings of WebSockets: what one client may do, and how many may come at once.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use switchboard_core::types::Invalid;
use switchboard_gateway::{Limits, Rate, SocketConfig};

use super::duration;
use super::setting::{ConfigError, Setting, integer};

const WS_MESSAGE_MAX_BYTES: Setting = Setting::new("WS_MESSAGE_MAX_BYTES", "--ws-message-max-bytes");
const WS_CHANNELS: Setting = Setting::new("WS_CHANNELS", "--ws-channels");
const WS_JOIN_RATE: Setting = Setting::new("WS_JOIN_RATE", "--ws-join-rate");
const WS_MESSAGE_RATE: Setting = Setting::new("WS_MESSAGE_RATE", "--ws-message-rate");
const WS_OPEN_RATE: Setting = Setting::new("WS_OPEN_RATE", "--ws-open-rate");
const WS_AUTH_TIMEOUT: Setting = Setting::new("WS_AUTH_TIMEOUT", "--ws-auth-timeout");
const WS_PING_AFTER: Setting = Setting::new("WS_PING_AFTER", "--ws-ping-after");
const WS_SEND_TIMEOUT: Setting = Setting::new("WS_SEND_TIMEOUT", "--ws-send-timeout");

/// Longest of the durations.
const LONGEST: Duration = Duration::from_hours(1);

/// As given.
#[derive(Args)]
#[command(next_help_heading = "WebSockets")]
#[allow(clippy::struct_field_names, reason = "the flags are named after the fields")]
pub(crate) struct SocketArgs {
    /// Largest message of a client, in bytes: 1024 to 33554432. A larger one closes its socket (1009).
    #[arg(
        long,
        env = "WS_MESSAGE_MAX_BYTES",
        hide_env_values = true,
        value_name = "BYTES",
        default_value = "1064960"
    )]
    ws_message_max_bytes: OsString,

    /// Channels that one socket may have joined at a time: 1 to 10000.
    #[arg(long, env = "WS_CHANNELS", hide_env_values = true, value_name = "NUMBER", default_value = "100")]
    ws_channels: OsString,

    /// Joins per second of one socket, 1 to 100000; five times as many at once.
    #[arg(long, env = "WS_JOIN_RATE", hide_env_values = true, value_name = "NUMBER", default_value = "20")]
    ws_join_rate: OsString,

    /// Messages of any kind per second of one socket, 1 to 100000; twice as many at once. Whoever goes on regardless is closed (4429).
    #[arg(
        long,
        env = "WS_MESSAGE_RATE",
        hide_env_values = true,
        value_name = "NUMBER",
        default_value = "100"
    )]
    ws_message_rate: OsString,

    /// Sockets opened per second on this node, 1 to 100000; twice as many at once. Others are told to try again (503).
    #[arg(long, env = "WS_OPEN_RATE", hide_env_values = true, value_name = "NUMBER", default_value = "500")]
    ws_open_rate: OsString,

    /// How long a socket may stay without a valid token, up to 1h.
    #[arg(
        long,
        env = "WS_AUTH_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "10s"
    )]
    ws_auth_timeout: OsString,

    /// Silence of a client after which it is pinged, up to 1h; after half as long again it is given up (4408).
    ///
    /// Keep it below what load balancers allow for idle connections, and above what clients let pass between heartbeats (25 or 30 s): then
    /// these cost nothing more.
    #[arg(
        long,
        env = "WS_PING_AFTER",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "40s"
    )]
    ws_ping_after: OsString,

    /// How long a client may take to accept what is sent to it, up to 1h; then it is closed (1013).
    #[arg(
        long,
        env = "WS_SEND_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "10s"
    )]
    ws_send_timeout: OsString,
}

impl SocketArgs {
    /// `drain` is the time that a node has for its end.
    pub(crate) fn resolve(self, drain: Duration) -> Result<SocketConfig, ConfigError> {
        let rate = |setting: Setting, value: &OsString, at_once: u32| {
            let per_second = setting.parse(value, |text| integer(text, 1, 100_000))?;
            let per_second = u32::try_from(per_second).unwrap_or(u32::MAX);
            Ok(Rate { per_second, burst: per_second.saturating_mul(at_once) })
        };
        let time = |setting: Setting, value: &OsString| setting.parse(value, positive);
        let ping_after = time(WS_PING_AFTER, &self.ws_ping_after)?;
        Ok(SocketConfig {
            limits: Limits {
                message_bytes: WS_MESSAGE_MAX_BYTES
                    .parse(&self.ws_message_max_bytes, |text| integer(text, 1024, 32 * 1024 * 1024))?,
                channels: WS_CHANNELS.parse(&self.ws_channels, |text| integer(text, 1, 10_000))?,
                joins: rate(WS_JOIN_RATE, &self.ws_join_rate, 5)?,
                messages: rate(WS_MESSAGE_RATE, &self.ws_message_rate, 2)?,
                unauthenticated: time(WS_AUTH_TIMEOUT, &self.ws_auth_timeout)?,
                ping_after,
                idle: ping_after.mul_f64(1.5),
                ..Limits::default()
            },
            opening: rate(WS_OPEN_RATE, &self.ws_open_rate, 2)?,
            send_timeout: time(WS_SEND_TIMEOUT, &self.ws_send_timeout)?,
            // The rest is for those who do not go by themselves, and for our own farewell.
            drain_window: drain / 4,
        })
    }
}

fn positive(text: &str) -> Result<Duration, Invalid> {
    let duration = duration::parse_at_most(text, LONGEST)?;
    if duration.is_zero() {
        return Err(Invalid::new("duration", text, "must be longer than nothing"));
    }
    Ok(duration)
}
