//! Counts the clients that stay: streams and sockets.
//!
//! Invariant: there are never more than leave room for short requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::problem::Problem;
use crate::state::Gateway;

/// One client, for as long as it stays.
pub(crate) struct Present(Arc<AtomicUsize>);

impl Present {
    /// A stream of Server-Sent Events begins.
    pub(crate) fn enter_stream(gateway: &Gateway) -> Result<Self, Problem> {
        Self::enter(gateway, &gateway.counts().sse_clients)
    }

    /// A WebSocket is opened.
    pub(crate) fn enter_socket(gateway: &Gateway) -> Result<Self, Problem> {
        Self::enter(gateway, &gateway.counts().ws_clients)
    }

    fn enter(gateway: &Gateway, kind: &Arc<AtomicUsize>) -> Result<Self, Problem> {
        let (counts, most) = (gateway.counts(), gateway.config().streams());
        // Counted first: two that come at once may both be refused, but never both be let in.
        kind.fetch_add(1, Ordering::Relaxed);
        let present = Self(Arc::clone(kind));
        let all = [&counts.sse_clients, &counts.ws_clients].map(|count| count.load(Ordering::Relaxed));
        if all.iter().sum::<usize>() <= most {
            return Ok(present);
        }
        let detail = format!("this node serves {most} streams and sockets already, which is all it may");
        Err(Problem::unavailable(detail))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
