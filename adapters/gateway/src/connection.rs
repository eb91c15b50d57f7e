//! One connection, from its first byte to its last.
//!
//! Invariant: a client can hold a connection open only by sending requests or by being sent a stream, and after the
//! server was asked to stop only while its request is being handled.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use futures::future::BoxFuture;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::idle::Seat;

/// Largest head of a request, and most bytes that wait to be read or written.
const BUFFER: usize = 64 * 1024;

/// What a client may take its time for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// To send the head of a request, from the connection's start or the last answer on. Longer than the minute for which load
    /// balancers keep idle connections: whoever closes first while the other sends breaks that request.
    pub(crate) idle: Duration,
    /// The same when others need its place. Enough for a request that is on its way, and little for a probe to wait.
    pub(crate) chance: Duration,
    /// To finish sending a request that was answered before it was read.
    pub(crate) linger: Duration,
    /// To take the rest of its answer when the server stops.
    pub(crate) parting: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(75),
            chance: Duration::from_millis(100),
            linger: Duration::from_secs(2),
            parting: Duration::from_millis(500),
        }
    }
}

/// In the extensions of every request: what its connection is for once it was answered with 101.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<parking_lot::Mutex<Option<Protocol>>>);

/// Given the connection, and what was read of it already.
type Protocol = Box<dyn FnOnce(TcpStream, Bytes) -> BoxFuture<'static, ()> + Send>;

impl Switch {
    /// Says how the connection goes on.
    pub(crate) fn to(
        &self,
        protocol: impl FnOnce(TcpStream, Bytes) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        *self.0.lock() = Some(Box::new(protocol));
    }
}

/// Serves `stream` until the client has gone, took too long, or `stop`. Or until a request has switched it to another protocol: then the
/// answer is how it goes on, for a task of its own, so that what HTTP needed is given back.
pub(crate) async fn attend(
    stream: TcpStream,
    router: Router,
    bounds: Bounds,
    seat: &Arc<Seat>,
    stop: CancellationToken,
) -> Option<BoxFuture<'static, ()>> {
    // Events are small and waited for. A socket that refuses is merely slower.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let handling = Arc::new(Mutex::new(()));
    let switch = Switch::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(switch.clone());
        let (answer, handling) = (router.call(request), Arc::clone(&handling));
        Box::pin(async move {
            let Some(busy) = seat.rise() else {
                // The connection is about to be dropped.
                return pending().await;
            };
            let _held = handling.lock().await;
            answer.await.map(|response| response.map(|body| busy.until_sent(body)))
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.idle)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let stopped = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => {
            if let Err(error) = ended {
                debug!(%error, "an HTTP connection broke off");
            }
            false
        }
        () = stop.cancelled() => true,
    };
    if stopped {
        Pin::new(&mut connection).graceful_shutdown();
        let overdue = async {
            drop(handling.lock().await);
            sleep(bounds.parting).await;
        };
        tokio::select! {
            // However it ends, nobody is left to hear of it.
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => {}
            () = overdue => {}
        }
        return None;
    }
    let protocol = switch.0.lock().take();
    if let Some(protocol) = protocol {
        // Never idle again, whatever is not said on it.
        let parts = seat.leave().then(|| connection.into_parts())?;
        return Some(protocol(parts.io.into_inner(), parts.read_buf));
    }
    let closed = close(connection.into_parts().io.into_inner(), bounds.linger);
    // No time for courtesies when the server stops.
    let _ = stop.run_until_cancelled(closed).await;
    None
}

/// Closes without taking the last answer away: a socket that is closed while it has something to read is reset, and then the
/// client may never see why it was refused.
async fn close(mut stream: TcpStream, linger: Duration) {
    let goodbye = async {
        stream.shutdown().await?;
        let mut scrap = vec![0; 8 * 1024];
        while stream.read(&mut scrap).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    // A client that is gone or goes on for too long has lost its claim to a tidy end.
    let _ = timeout(linger, goodbye).await;
}
